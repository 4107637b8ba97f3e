/**
 * Logs the protocol errors of peers. Each fault of an address is logged once, then only the number of its repetitions,
 * once a minute. Faults that differ only in numbers or quoted words count as one. So ten thousand bad frames are one
 * line in the log, and at most twenty if each is another fault.
 */
import { now } from "./clock.js";
import type { ErrorCode } from "./errors.js";

/** The part of pino that laboro uses, so that an embedding program can pass its own logger. */
export interface Log {
  /** What happens in the usual course. */
  info(fields: object, text: string): void;
  /** Something that an operator should look at. */
  warn(fields: object, text: string): void;
  /** What does not work. */
  error(fields: object, text: string): void;
}

export const SILENT: Log = { info: () => {}, warn: () => {}, error: () => {} };

const AGAIN_MS = 60_000;
/** How many addresses are remembered. */
const MAX_SOURCES = 1_000;
/** Faults of one address and code within a minute; further ones count as one more fault. */
const MAX_FAULTS = 19;
const FURTHER = "";

interface ReportedError {
  since: number;
  suppressed: number;
}

export class PeerErrors {
  readonly #log: Log;
  readonly #now: () => number;
  readonly #sources = new Map<string, Map<string, ReportedError>>();

  constructor(log: Log, clock: () => number = now) {
    this.#log = log;
    this.#now = clock;
  }

  /** `peer` is the address, without the port if that changes with each connection. */
  report(listener: string, peer: string, code: ErrorCode, why: string): void {
    const faults = this.#faultsOf(`${listener}\0${peer}\0${code}`);
    const kind = kindOf(why);
    const fault = faults.has(kind) || faults.size < MAX_FAULTS ? kind : FURTHER;
    const known = faults.get(fault);
    const time = this.#now();
    if (known !== undefined && time - known.since < AGAIN_MS) {
      known.suppressed++;
      return;
    }
    faults.set(fault, { since: time, suppressed: 0 });
    const times = known === undefined ? {} : { times: known.suppressed + 1 };
    this.#log.warn({ listener, peer, code, ...times }, why);
  }

  #faultsOf(source: string): Map<string, ReportedError> {
    const faults = this.#sources.get(source) ?? new Map<string, ReportedError>();
    this.#sources.delete(source);
    this.#sources.set(source, faults);
    const [oldest] = this.#sources.keys();
    if (this.#sources.size > MAX_SOURCES && oldest !== undefined) this.#sources.delete(oldest);
    const old = this.#now() - AGAIN_MS;
    for (const [fault, { since, suppressed }] of faults) {
      if (suppressed === 0 && since <= old) faults.delete(fault);
    }
    return faults;
  }
}

const kindOf = (why: string): string =>
  why
    .slice(0, 200)
    // A quoted word may contain escaped quotes, and may be cut off.
    .replace(/"(?:[^"\\]|\\.)*(?:"|\\?$)/gs, '""')
    .replace(/\w*\d\w*/g, "0");
