/**
 * Tasks whose time limit is longer than the worker will be there are given back unstarted. A broker that does not mind our
 * time hands them out again, perhaps to us: so they go back at most once a second, and wait here meanwhile.
 */
import type { JobId } from "../model/ids.js";
import type { TaskRange } from "../protocols/laboro/messages.js";
import type { Lifetime } from "./lifetime.js";

const AGAIN_MS = 1_000;

export interface TooLongOptions {
  readonly lifetime: Lifetime;
  readonly limitOf: (job: JobId) => number | undefined;
  /** Takes the tasks of such jobs out of the stock. */
  readonly take: (ofJob: (job: JobId) => boolean) => readonly TaskRange[];
  readonly giveBack: (tasks: readonly TaskRange[]) => void;
}

export class TooLong {
  readonly #options: TooLongOptions;
  #pause: NodeJS.Timeout | undefined;

  constructor(options: TooLongOptions) {
    this.#options = options;
  }

  has(job: JobId): boolean {
    const limit = this.#options.limitOf(job);
    return limit !== undefined && limit > this.#options.lifetime.leftMs;
  }

  giveBack(): void {
    if (this.#pause !== undefined) return;
    const tasks = this.#options.take((job) => this.has(job));
    if (tasks.length === 0) return;
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.giveBack();
    }, AGAIN_MS);
    this.#options.giveBack(tasks);
  }

  stop(): void {
    clearTimeout(this.#pause);
  }
}
