/**
 * Follows the output of a job's tasks until all of them have ended. Ended tasks are printed once. Tasks that run are followed from the
 * moment when they have output; more than a few at a time are printed when they have ended.
 */
import type { Client } from "../../../client/client.js";
import { contains, difference, type Ranges, sizeOf } from "../../../model/ranges.js";
import { followWithRetry } from "../../lib/broker-connection.js";
import type { JobView } from "../../lib/views.js";
import { printLive, printStored, type TaskAttempt } from "./task-output.js";
import { type PrintOptions, TaskPrinter } from "./task-printer.js";

/** More tasks than this at one time are printed when they have ended. */
const MAX_FOLLOWED = 64;

export async function followJob(
  client: Client,
  job: JobView,
  wanted: Ranges | undefined,
  options: PrintOptions,
): Promise<void> {
  await new JobFollower(client, job, wanted, options).run();
}

class JobFollower {
  readonly #client: Client;
  readonly #job: JobView;
  readonly #wanted: Ranges;
  readonly #options: PrintOptions;
  /** INDEX:ATTEMPT of what was printed or is being followed. */
  readonly #seen = new Set<string>();
  readonly #live = new Set<Promise<void>>();
  /** Tasks that may still end. */
  #open: number;
  /** The first failure of one that is followed. */
  #failure: unknown;

  constructor(client: Client, job: JobView, wanted: Ranges | undefined, options: PrintOptions) {
    this.#client = client;
    this.#job = job;
    const all = { first: 0, last: job.count - 1 };
    this.#wanted = wanted === undefined ? [all] : wanted;
    this.#options = options;
    // Those that were cancelled before they ran have no result.
    this.#open = 0;
    for (const range of this.#wanted) for (const part of difference(range, job.cancels)) this.#open += sizeOf(part);
  }

  async run(): Promise<void> {
    const { id, count } = this.#job;
    const has = difference({ first: 0, last: count - 1 }, this.#wanted);
    const isSelection = has.length > 0;
    for await (const { tasks, running = [] } of followWithRetry(this.#client, id, { has, live: true })) {
      await this.#printEnded(tasks);
      for (const task of running)
        if (contains(this.#wanted, task.index) && this.#live.size < MAX_FOLLOWED) this.#follow(task);
      if (this.#failure !== undefined) throw this.#failure;
      this.#open -= tasks.filter(({ index }) => !contains(this.#job.cancels, index)).length;
      // A job that has other tasks may go on for long.
      if (isSelection && this.#open <= 0) break;
    }
    await Promise.all(this.#live);
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #printEnded(tasks: readonly TaskAttempt[]): Promise<void> {
    const unseen = tasks.filter((task) => this.#isNew(task));
    await printStored(this.#client, this.#job.id, toAsync(unseen), (task) => this.#printer(task));
  }

  #follow(task: TaskAttempt): void {
    if (!this.#isNew(task)) return;
    const following = printLive(this.#client, this.#job.id, task, this.#printer(task));
    this.#live.add(following);
    const remove = (): boolean => this.#live.delete(following);
    following.then(remove, (cause: unknown) => {
      this.#failure ??= cause;
      remove();
    });
  }

  #isNew({ index, attempt }: TaskAttempt): boolean {
    const name = `${index}:${attempt}`;
    return this.#seen.size !== this.#seen.add(name).size;
  }

  #printer({ number }: TaskAttempt): TaskPrinter {
    return new TaskPrinter(`${this.#job.id}.${number}`, this.#options);
  }
}

async function* toAsync<T>(items: Iterable<T>): AsyncGenerator<T> {
  yield* items;
}
