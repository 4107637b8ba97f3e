/**
 * Peers that misbehave, in the log: each address with each code once, and then only how often, once in a while. Ten thousand bad frames
 * are one line.
 */

import { now } from "./clock.js";
import type { ErrorCode } from "./errors.js";
import type { Log } from "./log.js";

const AGAIN_MS = 60_000;
/** Addresses that are remembered; the oldest goes first. */
const MOST = 1_000;

interface Known {
  since: number;
  unsaid: number;
}

export class Complaints {
  readonly #log: Log;
  readonly #known = new Map<string, Known>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** `peer` is its address, without the port where that changes with each connection. */
  about(door: string, peer: string, code: ErrorCode, why: string): void {
    const key = `${door}\0${peer}\0${code}`;
    const known = this.#known.get(key);
    if (known !== undefined && now() - known.since < AGAIN_MS) {
      known.unsaid++;
      return;
    }
    const times = known === undefined ? {} : { times: known.unsaid + 1 };
    this.#known.delete(key);
    this.#known.set(key, { since: now(), unsaid: 0 });
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST && oldest !== undefined) this.#known.delete(oldest);
    this.#log.warn({ door, peer, code, ...times }, why);
  }
}
