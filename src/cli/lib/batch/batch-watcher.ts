/**
 * Watches a batch to its end and reports each task that ends, once, also across restarts of the broker. The broker's events say which
 * tasks have ended; if events were missed, the results are scanned for tasks that were not reported yet.
 */
import type { Client } from "../../../client/client.js";
import type { JobEnd } from "../../../model/job.js";
import type { Range } from "../../../model/ranges.js";
import type { OperationOutput, TaskView } from "../views.js";
import type { TaskCounts } from "./progress-bar.js";

const WAIT_MS = 5_000;
/** Tasks that are reported together: all of them or, if the broker disconnects meanwhile, none. */
const REPORT_BATCH = 16;
const ALL: Range = { first: 0, last: Number.POSITIVE_INFINITY };

export interface BatchHandlers {
  onEnded(tasks: readonly TaskView[]): Promise<void>;
  onCounters(counters: TaskCounts): void;
}

export class BatchWatcher {
  readonly #job: number;
  readonly #handlers: BatchHandlers;
  readonly #reported = new Set<number>();
  #after: number | undefined;
  /** Somebody holds the job. */
  held = false;

  /** `after`: the last event before the batch began; tasks that ended earlier are not reported. */
  constructor(job: number, after: number, handlers: BatchHandlers) {
    this.#job = job;
    this.#after = after;
    this.#handlers = handlers;
  }

  /** For a task that ended in an earlier run: it is not reported. */
  skip(index: number): void {
    this.#reported.add(index);
  }

  /** Rejects with LABORO_BROKER_GONE if the broker disconnects; call it again with a new client. */
  async waitForEnd(client: Client, stop: AbortSignal): Promise<JobEnd | undefined> {
    for (;;) {
      const page = await unlessAborted(this.#nextPage(client), stop);
      if (page !== undefined) await this.#handleEvents(client, page);
      const ended = await client.ask("wait", { job: this.#job, timeoutMs: 0 });
      if (ended.ended || stop.aborted) {
        await this.#reportEnded(client, ALL);
        return ended.state;
      }
    }
  }

  async #handleEvents(client: Client, page: OperationOutput<"events">): Promise<void> {
    if (page.missed) await this.#reportEnded(client, ALL);
    for (const event of page.events) {
      if (event.counters !== undefined) this.#handlers.onCounters(event.counters);
      if (event.kind === "job-held" || event.kind === "job-released") this.held = event.kind === "job-held";
      if (event.kind !== "tasks-ended") continue;
      const ranges = [...(event.succeeded ?? []), ...(event.failed ?? []), ...(event.cancelled ?? [])];
      for (const range of event.truncated === true ? [ALL] : ranges) await this.#reportEnded(client, range);
    }
    // Only now: if the broker disconnects before, the events are read again, and what was reported is known.
    this.#after = page.last;
  }

  #nextPage(client: Client): Promise<OperationOutput<"events">> {
    return client.ask("events", { job: this.#job, waitMs: WAIT_MS, after: this.#after ?? 0 });
  }

  async #reportEnded(client: Client, range: Range): Promise<void> {
    let from: number | undefined = range.first;
    while (from !== undefined && from <= range.last) {
      const limit = Math.min(1_000, range.last - from + 1);
      const page: OperationOutput<"tasks"> = await client.ask("tasks", { job: this.#job, from, limit });
      const unreported = page.tasks.filter(({ index }) => index <= range.last && !this.#reported.has(index));
      for (let at = 0; at < unreported.length; at += REPORT_BATCH) {
        const some = unreported.slice(at, at + REPORT_BATCH);
        await this.#handlers.onEnded(some);
        for (const { index } of some) this.#reported.add(index);
      }
      from = page.next;
    }
  }
}

/** Resolves with undefined if the signal is aborted first. Removes its listener: a long run calls this often. */
function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const stop = (): void => resolve(undefined);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
    answer.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
