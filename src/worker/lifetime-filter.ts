/**
 * Tasks whose time limit is longer than the worker will be there are given back unstarted. A broker that does not mind our
 * time hands them out again, perhaps to us: so they go back at most once a second, and wait here meanwhile.
 */
import type { JobId } from "../model/ids.js";
import type { AttemptRange } from "../protocols/laboro/messages.js";
import type { Lifetime } from "./lifetime.js";

const RETURN_INTERVAL_MS = 1_000;

export interface LifetimeFilterOptions {
  readonly lifetime: Lifetime;
  readonly timeLimitOf: (job: JobId) => number | undefined;
  /** Takes the tasks of such jobs out of the stock. */
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
