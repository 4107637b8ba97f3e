/** Spaces out repeated attempts: the first one is made at once, those soon after it wait longer and longer. */
export const RETRY_MS = 500;
const MAX_FACTOR = 10;

export class RetryDelay {
  readonly #firstMs: number;
  #delayMs = 0;
  #last = Number.NEGATIVE_INFINITY;

  constructor(firstMs = RETRY_MS) {
    this.#firstMs = firstMs;
  }

  /** How long to wait before the next attempt. */
  next(now = performance.now()): number {
    const maxMs = MAX_FACTOR * this.#firstMs;
    this.#delayMs = now - this.#last > 2 * maxMs ? 0 : Math.min(Math.max(2 * this.#delayMs, this.#firstMs), maxMs);
    const at = Math.max(now, this.#last + this.#delayMs);
    this.#last = at;
    return at - now;
  }
}
