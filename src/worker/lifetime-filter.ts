/**
 * Returns tasks unstarted whose time limit is longer than the worker's remaining lifetime. A broker that ignores the lifetime
 * may assign them to this worker again: so they are returned at most once a second, and wait here meanwhile.
 */
import type { JobId } from "../model/ids.js";
import type { AttemptRange } from "../protocols/laboro/messages.js";
import type { Lifetime } from "./lifetime.js";

const RETURN_INTERVAL_MS = 1_000;

export interface LifetimeFilterOptions {
  readonly lifetime: Lifetime;
  readonly timeLimitOf: (job: JobId) => number | undefined;
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
    const limit = this.#options.timeLimitOf(job);
    return limit !== undefined && limit > this.#options.lifetime.remainingMs;
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
