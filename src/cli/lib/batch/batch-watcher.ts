/**
 * Watches a batch to its end: tells of each task that ends, once, however the broker comes and goes meanwhile. The broker's events say
 * which tasks have ended; where some were missed, the results are looked through for what was not told yet.
 */
import type { Client } from "../../../client/client.js";
import type { JobEnd } from "../../../model/job.js";
import type { Range } from "../../../model/ranges.js";
import type { OperationOutput, TaskView } from "../views.js";
import type { Standing } from "./progress-bar.js";

const WAIT_MS = 5_000;
/** Tasks that are told of together: all of them or, where the broker goes meanwhile, none. */
const AT_ONCE = 16;
const ALL: Range = { first: 0, last: Number.POSITIVE_INFINITY };

export interface Watched {
  ended(tasks: readonly TaskView[]): Promise<void>;
  standing(counters: Standing): void;
}

export class Watch {
  readonly #job: number;
  readonly #watched: Watched;
  readonly #told = new Set<number>();
  #after: number | undefined;

  /** `after`: the last event before the batch began; tasks that ended earlier are not told of. */
  constructor(job: number, after: number, watched: Watched) {
    this.#job = job;
    this.#after = after;
    this.#watched = watched;
  }

  /** Tasks that need no telling: they ended in an earlier run. */
  skip(index: number): void {
    this.#told.add(index);
  }

  /** Rejects with LABORO_BROKER_GONE where the broker went; call it again with a client of the next one. */
  async toEnd(client: Client, stop: AbortSignal): Promise<JobEnd | undefined> {
    for (;;) {
      const page = await unlessAborted(this.#nextPage(client), stop);
      if (page !== undefined) await this.#hear(client, page);
      const ended = await client.ask("wait", { job: this.#job, timeoutMs: 0 });
      if (ended.ended || stop.aborted) {
        await this.#tellFrom(client, ALL);
        return ended.state;
      }
    }
  }

  async #hear(client: Client, page: OperationOutput<"events">): Promise<void> {
    if (page.missed) await this.#tellFrom(client, ALL);
    for (const event of page.events) {
      if (event.counters !== undefined) this.#watched.standing(event.counters);
      if (event.kind !== "tasks-ended") continue;
      const ranges = [...(event.succeeded ?? []), ...(event.failed ?? []), ...(event.cancelled ?? [])];
      for (const range of event.partly === true ? [ALL] : ranges) await this.#tellFrom(client, range);
    }
    // Only now: where the broker goes in between, all of it is heard again, and what was told is known.
    this.#after = page.last;
  }

  #nextPage(client: Client): Promise<OperationOutput<"events">> {
    return client.ask("events", { job: this.#job, waitMs: WAIT_MS, after: this.#after ?? 0 });
  }

  async #tellFrom(client: Client, range: Range): Promise<void> {
    let from: number | undefined = range.first;
    while (from !== undefined && from <= range.last) {
      const limit = Math.min(1_000, range.last - from + 1);
      const page: OperationOutput<"tasks"> = await client.ask("tasks", { job: this.#job, from, limit });
      const news = page.tasks.filter(({ index }) => index <= range.last && !this.#told.has(index));
      for (let at = 0; at < news.length; at += AT_ONCE) {
        const some = news.slice(at, at + AT_ONCE);
        await this.#watched.ended(some);
        for (const { index } of some) this.#told.add(index);
      }
      from = page.next;
    }
  }
}

/** Resolves with nothing when the signal is given first. A long run asks often: nothing of it stays with the signal. */
function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const stop = (): void => resolve(undefined);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
    answer.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
