/** Follows a batch to its end and reports each task once: a new client tells the broker which were reported. */
import type { Client } from "../../../client/client.js";
import type { TakeOutput } from "../../../client/follow.js";
import type { JobEnd } from "../../../model/job.js";
import type { EndedTask, JobProgress } from "../../../model/outcome.js";
import { EndedTasks, rangesOf } from "../../../model/ranges.js";
import { pages, type TaskView } from "../result-text.js";
import type { TaskCounts } from "./progress-bar.js";

/** An ended task, with its output if that is small. */
export type ReportedTask = TaskView & Pick<EndedTask, "output">;

interface BatchHandlers {
  onEnded(tasks: readonly ReportedTask[]): Promise<void>;
  onProgress(progress: JobProgress): void;
  readonly relay: TakeOutput;
  /** Also report that output was stored. */
  readonly live: boolean;
}

export class BatchFollower {
  readonly #job: number;
  readonly #handlers: BatchHandlers;
  readonly #reported: EndedTasks;
  counters: TaskCounts = { succeeded: 0, failed: 0, cancelled: 0 };
  /** The job is held. */
  held = false;

  /** Tasks that ended in an earlier run are not reported. */
  constructor(job: number, endedBefore: ReadonlySet<number>, handlers: BatchHandlers) {
    this.#job = job;
    this.#reported = new EndedTasks(rangesOf([...endedBefore].sort((a, b) => a - b)));
    this.#handlers = handlers;
  }

  /** Undefined if `stop` was aborted before the end. Rejects with LABORO_BROKER_GONE: call again with a new client. */
  async waitForEnd(client: Client, stop: AbortSignal): Promise<JobEnd | undefined> {
    const { live, relay, onProgress } = this.#handlers;
    const options = { has: this.#reported.ranges, live, relay, reconnect: false, signal: stop };
    try {
      for await (const progress of client.follow(this.#job, options)) {
        this.counters = progress.counters ?? this.counters;
        this.held = progress.held ?? this.held;
        onProgress(progress);
        await this.#report(progress.tasks);
        if (progress.ended !== undefined) return progress.ended;
      }
    } catch (cause) {
      if (!stop.aborted) throw cause;
    }
    return this.#reportRest(client);
  }

  /** After an interrupt: reports the tasks that have ended by now. */
  async #reportRest(client: Client): Promise<JobEnd | undefined> {
    for await (const page of pages((from) => client.ask("tasks", { job: this.#job, from })))
      await this.#report(page.tasks);
    const { state } = await client.ask("wait", { job: this.#job, timeoutMs: 0 });
    this.counters = (await client.ask("job", { job: this.#job })).counters;
    return state;
  }

  async #report(tasks: readonly ReportedTask[]): Promise<void> {
    const unknown = tasks.filter((task) => !this.#reported.has(task));
    await this.#handlers.onEnded(unknown);
    for (const task of unknown) this.#reported.add(task);
  }
}
