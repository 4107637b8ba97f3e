/**
 * Delays the refusal of wrong tokens, longer with each one from the same address. Valid tokens are never delayed: a whole cluster may be
 * behind one address. A token has 192 bits, so this is not needed against guessing; it limits the load.
 */
import { networkOf } from "../../base/addresses.js";

const FIRST_MS = 100;
/** Below the time after which a connection without authentication is destroyed. */
const MAX_MS = 3_200;
/** Failures are forgotten after this time without another one. */
const FORGOTTEN_MS = 60_000;
/** Addresses that are remembered; the one with the oldest failure is dropped first. */
const ADDRESSES = 1_000;
/** Delayed refusals for one address; beyond that a request is refused at once. */
const MAX_DELAYED = 16;

interface FailedLogins {
  failures: number;
  last: number;
  delayed: number;
}

export class TokenThrottle {
  readonly #offenders = new Map<string, FailedLogins>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get size(): number {
    return this.#offenders.size;
  }

  /** A wrong token came. The delay before the refusal; undefined if too many wait already. */
  delayAfterFailure(address: string): number | undefined {
    const key = networkOf(address);
    const at = this.#now();
    const before = this.#offenders.get(key);
    const offender =
      before !== undefined && at - before.last < FORGOTTEN_MS ? before : { failures: 0, last: at, delayed: 0 };
    this.#offenders.delete(key);
    this.#offenders.set(key, offender);
    offender.last = at;
    const [oldest] = this.#offenders.keys();
    if (this.#offenders.size > ADDRESSES && oldest !== undefined) this.#offenders.delete(oldest);
    if (offender.delayed >= MAX_DELAYED) return undefined;
    offender.delayed++;
    return Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(offender.failures++, 20));
  }

  /** A delayed refusal was sent. */
  refusalSent(address: string): void {
    const offender = this.#offenders.get(networkOf(address));
    if (offender !== undefined && offender.delayed > 0) offender.delayed--;
  }
}
