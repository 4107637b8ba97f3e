/**
 * Keeps a connection to a foreman up.
 *
 *   connecting  one try
 *   open        connected; whoever speaks on it says when it has joined
 *   waiting     the try has failed, or the connection ended before it joined: the next try comes after 1, 2, 4 … seconds
 *   stopped     nothing is tried any more
 *
 * After a connection that had joined, the next try is made at once, as the original makes it.
 */

import { asLaboroError, type LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { Connect, Wire } from "./wire.js";

export interface Visit {
  message(bytes: Buffer): void;
  /** The connection is gone. */
  close(): void;
}

export interface AttendanceOptions {
  readonly connect: Connect;
  readonly log: Log;
  /** Speaks on a connection that has come up. */
  readonly visit: (wire: Wire, joined: () => void) => Visit;
  /** The foreman will not have us. Nothing more is tried. */
  readonly onRefused: (error: LaboroError) => void;
  /** It cannot be reached, for the n-th time in a row. */
  readonly onUnreachable: (error: LaboroError, times: number) => void;
  readonly firstDelayMs?: number;
  readonly longestDelayMs?: number;
  /** A foreman that says nothing for so long after the connection has come up is not waited for. */
  readonly patienceMs?: number;
}

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 60_000;
const PATIENCE_MS = 15_000;
/** A connection that ends sooner than this is not followed by another at once. */
const SHORT_MS = 1_000;

export class Attendance {
  readonly #options: AttendanceOptions;
  #inVain = 0;
  #stopped = false;
  #abandon: () => void = () => {};
  #joined = false;
  #everJoined = false;

  constructor(options: AttendanceOptions) {
    this.#options = options;
    this.#try();
  }

  get joined(): boolean {
    return this.#joined;
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#abandon();
  }

  #try(): void {
    const { connect, visit, patienceMs = PATIENCE_MS } = this.#options;
    const aborter = new AbortController();
    const since = performance.now();
    let visiting: Visit | undefined;
    let over = false;
    const end = (failure: LaboroError | string): void => {
      if (over) return;
      over = true;
      clearTimeout(patience);
      visiting?.close();
      const joined = this.#joined && performance.now() - since > SHORT_MS;
      this.#joined = false;
      if (!this.#stopped) this.#ended(failure, joined);
    };
    let wire: Wire | undefined;
    const hangUp = (): void => {
      if (wire === undefined) aborter.abort();
      else wire.close();
    };
    const patience = setTimeout(() => {
      hangUp();
      end("it said nothing");
    }, patienceMs);
    this.#abandon = () => {
      over = true;
      clearTimeout(patience);
      visiting?.close();
      hangUp();
    };
    const early: Buffer[] = [];
    connect(
      { message: (bytes) => (visiting === undefined ? early.push(bytes) : visiting.message(bytes)), closed: end },
      aborter.signal,
    ).then(
      (opened) => {
        wire = opened;
        if (over) {
          opened.close();
          return;
        }
        visiting = visit(opened, () => {
          clearTimeout(patience);
          this.#joined = true;
          this.#everJoined = true;
          this.#inVain = 0;
        });
        for (const bytes of early.splice(0)) visiting.message(bytes);
      },
      (cause: unknown) => end(asLaboroError(cause)),
    );
  }

  #ended(failure: LaboroError | string, atOnce: boolean): void {
    const { log, onRefused, onUnreachable, firstDelayMs = FIRST_DELAY_MS, longestDelayMs } = this.#options;
    if (typeof failure === "string") log.warn({}, `the connection to the foreman ended: ${failure}`);
    else if (this.#isFinal(failure)) {
      this.stop();
      onRefused(failure);
      return;
    } else onUnreachable(failure, this.#inVain + 1);
    if (this.#stopped) return;
    const longest = longestDelayMs ?? LONGEST_DELAY_MS;
    const delay = atOnce ? 0 : Math.min(longest, firstDelayMs * 2 ** Math.min(this.#inVain++, 20));
    const timer = setTimeout(() => this.#try(), delay);
    this.#abandon = () => clearTimeout(timer);
  }

  /** A certificate that did and now does not hold is something passing; at the first try it is the name of the foreman that is wrong. */
  #isFinal({ code }: LaboroError): boolean {
    return code === "LABORO_BAD_TOKEN" || (code === "LABORO_BAD_CERTIFICATE" && !this.#everJoined);
  }
}
