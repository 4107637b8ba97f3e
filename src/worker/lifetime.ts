/**
 * When a worker stops by itself: after a fixed time, as under a batch system, and after an idle time.
 */

/** Node treats a longer timeout as 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export class Lifetime {
  readonly #deadline: number;
  readonly #now: () => number;
  readonly #onExpired: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(ms: number, now: () => number, onExpired: () => void) {
    this.#deadline = now() + ms;
    this.#now = now;
    this.#onExpired = onExpired;
    this.#wait();
  }

  get remainingMs(): number {
    return Math.max(0, this.#deadline - this.#now());
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #wait(): void {
    const left = this.remainingMs;
    this.#timer = setTimeout(
      () => {
        if (this.remainingMs > 0) this.#wait();
        else this.#onExpired();
      },
      Math.min(Math.ceil(left), MAX_TIMER_MS),
    );
  }
}

/** Calls `onTimeout` once the worker was idle for `ms` without a break. */
export class IdleWatch {
  readonly #ms: number;
  readonly #busy: () => boolean;
  readonly #onTimeout: () => void;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(ms: number, busy: () => boolean, onTimeout: () => void) {
    this.#ms = Math.min(ms, MAX_TIMER_MS);
    this.#busy = busy;
    this.#onTimeout = onTimeout;
  }

  /** To be called when work has come or ended. */
  check(): void {
    if (this.#stopped) return;
    if (this.#busy()) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
    } else {
      this.#timer ??= setTimeout(this.#onTimeout, this.#ms);
    }
  }

  /** There was work, even if it has ended already: the time starts again. */
  restart(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.check();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }
}
