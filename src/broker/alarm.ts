/** One timer for whatever falls due first. */
import { now } from "../base/clock.js";

const LONGEST_TIMER_MS = 2 ** 31 - 1;

export class Alarm {
  readonly #ring: () => void;
  #timer: NodeJS.Timeout | undefined;
  #at = Number.POSITIVE_INFINITY;

  constructor(ring: () => void) {
    this.#ring = ring;
  }

  /** Rings at this time, unless it is to ring sooner already. */
  set(at: number): void {
    if (at >= this.#at) return;
    clearTimeout(this.#timer);
    this.#at = at;
    const inMs = Math.min(Math.max(1, Math.ceil(at - now())), LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => {
      this.#at = Number.POSITIVE_INFINITY;
      this.#ring();
    }, inMs);
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
