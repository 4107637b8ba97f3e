/**
 * Follows the output of a job's tasks until all of them have ended. Ended tasks are printed once, running tasks are followed. The
 * broker's events report each task that ends; tasks that were started are found by polling. A task that started and ended between two
 * polls is printed when its end is reported.
 */
import type { Client } from "../../../client/client.js";
import { contains, countOf, intersection, type Ranges } from "../../../model/ranges.js";
import { askWithRetry } from "../../lib/broker-connection.js";
import { getJob } from "../../lib/select-jobs.js";
import type { JobView, OperationOutput } from "../../lib/views.js";
import { endedTasks, printLive, printStored, runningTasks, type TaskAttempt } from "./task-output.js";
import { type PrintOptions, TaskPrinter } from "./task-printer.js";

/** How often to poll for tasks that were started. */
const POLL_MS = 500;
/** More tasks than this at one time are printed when they have ended. */
const MAX_FOLLOWED = 64;

type Event = OperationOutput<"events">["events"][number];

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
  readonly #wanted: Ranges | undefined;
  readonly #options: PrintOptions;
  /** INDEX:ATTEMPT of what was printed or is being followed. */
  readonly #seen = new Set<string>();
  readonly #ended = new Set<number>();
  readonly #live = new Set<Promise<void>>();
  /** The first failure of one of these. */
  #failure: unknown;

  constructor(client: Client, job: JobView, wanted: Ranges | undefined, options: PrintOptions) {
    this.#client = client;
    this.#job = job;
    this.#wanted = wanted;
    this.#options = options;
  }

  async run(): Promise<void> {
    const { id } = this.#job;
    // Before the first scan: an end during the scan is reported again as an event, and then known.
    let after = (await askWithRetry(this.#client, "events", { job: id, limit: 1 })).last;
    let scan = true;
    for (;;) {
      if (scan) await this.#printEnded(this.#wanted);
      const { ended } = await getJob(this.#client, id);
      if (ended !== undefined || this.#allEnded()) break;
      for await (const task of runningTasks(this.#client, id, this.#wanted)) {
        if (this.#live.size < MAX_FOLLOWED) this.#follow(task);
      }
      if (this.#failure !== undefined) throw this.#failure;
      const page = await askWithRetry(this.#client, "events", { job: id, after, waitMs: POLL_MS });
      after = page.last;
      scan = page.missed || page.events.some(({ truncated }) => truncated === true);
      for (const event of page.events) await this.#handleEvent(event);
    }
    await this.#printEnded(this.#wanted);
    await Promise.all(this.#live);
  }

  async #handleEvent({ kind, succeeded = [], failed = [], cancelled = [] }: Event): Promise<void> {
    if (kind !== "tasks-ended") return;
    for (const range of [...succeeded, ...failed, ...cancelled]) {
      for (const part of this.#wanted === undefined ? [range] : intersection(range, this.#wanted)) {
        await this.#printEnded([part]);
        if (this.#wanted !== undefined)
          for (let index = part.first; index <= part.last; index++) this.#ended.add(index);
      }
    }
  }

  async #printEnded(wanted: Ranges | undefined): Promise<void> {
    await printStored(this.#client, this.#job.id, this.#newlyEnded(wanted), (task) => this.#printer(task));
  }

  async *#newlyEnded(wanted: Ranges | undefined): AsyncGenerator<TaskAttempt> {
    for await (const task of endedTasks(this.#client, this.#job.id, wanted)) {
      this.#ended.add(task.index);
      if (this.#isNew(task)) yield task;
    }
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

  /** Only for a selection of tasks. Those that were cancelled before they ran have no result. */
  #allEnded(): boolean {
    if (this.#wanted === undefined) return false;
    const { cancels, count } = this.#job;
    let ended = 0;
    for (const range of this.#wanted) {
      if (range.first >= count) continue;
      for (let index = range.first; index <= Math.min(range.last, count - 1); index++) {
        if (this.#ended.has(index) || contains(cancels, index)) ended++;
      }
    }
    return ended >= countOf(this.#wanted);
  }
}
