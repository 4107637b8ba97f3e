/** When a worker stops by itself, after a fixed or idle time, and which tasks it returns because they need longer. */
import { MAX_TIMER_MS } from "../base/clock.js";
import type { JobId } from "../model/ids.js";
import type { AttemptRange } from "../protocols/laboro/messages.js";

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

/**
 * Returns tasks unstarted that need more time than the worker's remaining lifetime. A broker that ignores the lifetime
 * may assign them to this worker again: so they are returned at most once a second, and wait here meanwhile.
 */
const RETURN_INTERVAL_MS = 1_000;

interface LifetimeFilterOptions {
  readonly lifetime: Lifetime;
  /** Its time request, or else its time limit. */
  readonly timeNeeded: (job: JobId) => number | undefined;
  /** Removes the prefetched tasks of these jobs and returns them. */
  readonly takeTasks: (ofJob: (job: JobId) => boolean) => readonly AttemptRange[];
  readonly returnTasks: (tasks: readonly AttemptRange[]) => void;
}

export class LifetimeFilter {
  readonly #options: LifetimeFilterOptions;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LifetimeFilterOptions) {
    this.#options = options;
  }

  exceeds(job: JobId): boolean {
    const needed = this.#options.timeNeeded(job);
    return needed !== undefined && needed > this.#options.lifetime.remainingMs;
  }

  returnTooLong(): void {
    if (this.#timer !== undefined) return;
    const tasks = this.#options.takeTasks((job) => this.exceeds(job));
    if (tasks.length === 0) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.returnTooLong();
    }, RETURN_INTERVAL_MS);
    this.#options.returnTasks(tasks);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
