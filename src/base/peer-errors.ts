/**
 * Logs the protocol errors of peers: each address and code once, and then only the number of repetitions, once a minute. Ten thousand
 * bad frames are one line.
 */

import { now } from "./clock.js";
import type { ErrorCode } from "./errors.js";
import type { Log } from "./log.js";

const AGAIN_MS = 60_000;
/** Addresses that are remembered; the oldest goes first. */
const MOST = 1_000;

interface ReportedError {
  since: number;
  suppressed: number;
}

export class PeerErrors {
  readonly #log: Log;
  readonly #known = new Map<string, ReportedError>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** `peer` is its address, without the port where that changes with each connection. */
  report(listener: string, peer: string, code: ErrorCode, why: string): void {
    const key = `${listener}\0${peer}\0${code}`;
    const known = this.#known.get(key);
    if (known !== undefined && now() - known.since < AGAIN_MS) {
      known.suppressed++;
      return;
    }
    const times = known === undefined ? {} : { times: known.suppressed + 1 };
    this.#known.delete(key);
    this.#known.set(key, { since: now(), suppressed: 0 });
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST && oldest !== undefined) this.#known.delete(oldest);
    this.#log.warn({ listener, peer, code, ...times }, why);
  }
}
