/** One timer for whatever is due first. */
import { now } from "../base/clock.js";

const MAX_TIMER_MS = 2 ** 31 - 1;

export class Alarm {
  readonly #fire: () => void;
  #timer: NodeJS.Timeout | undefined;
  #at = Number.POSITIVE_INFINITY;

  constructor(fire: () => void) {
    this.#fire = fire;
  }

  /** Fires at this time, unless an earlier time is set already. */
  set(at: number): void {
    if (at >= this.#at) return;
    clearTimeout(this.#timer);
    this.#at = at;
    const inMs = Math.min(Math.max(1, Math.ceil(at - now())), MAX_TIMER_MS);
    this.#timer = setTimeout(() => {
      this.#at = Number.POSITIVE_INFINITY;
      this.#fire();
    }, inMs);
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
