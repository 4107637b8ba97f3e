/**
 * Watches a batch to its end: tells of each task that ends, once, however the broker comes and goes meanwhile. The broker's events say
 * which tasks have ended; where some were missed, the results are looked through for what was not told yet.
 */
import type { Client } from "../../client/client.js";
import type { JobEnd } from "../../model/job.js";
import type { Range } from "../../model/ranges.js";
import type { OperationOutput, TaskView } from "../answers.js";
import type { Standing } from "./progress.js";

const WAIT_MS = 5_000;

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
      const page = await this.#nextPage(client);
      if (page.missed) await this.#tellFrom(client, { first: 0, last: Number.POSITIVE_INFINITY });
      this.#after = page.last;
      for (const event of page.events) {
        if (event.counters !== undefined) this.#watched.standing(event.counters);
        const ranges = [...(event.succeeded ?? []), ...(event.failed ?? []), ...(event.cancelled ?? [])];
        if (event.kind !== "tasks-ended") continue;
        if (event.partly === true) await this.#tellFrom(client, { first: 0, last: Number.POSITIVE_INFINITY });
        else for (const range of ranges) await this.#tellFrom(client, range);
      }
      const ended = await client.ask("wait", { job: this.#job, timeoutMs: 0 });
      if (ended.ended) {
        await this.#tellFrom(client, { first: 0, last: Number.POSITIVE_INFINITY });
        return ended.state;
      }
      if (stop.aborted) return undefined;
    }
  }

  async #nextPage(client: Client): Promise<OperationOutput<"events">> {
    const after = this.#after;
    return client.ask("events", {
      job: this.#job,
      waitMs: WAIT_MS,
      ...(after === undefined ? { after: 0 } : { after }),
    });
  }

  async #tellFrom(client: Client, range: Range): Promise<void> {
    let from: number | undefined = range.first;
    while (from !== undefined && from <= range.last) {
      const limit = Math.min(1_000, range.last - from + 1);
      const page: OperationOutput<"tasks"> = await client.ask("tasks", { job: this.#job, from, limit });
      const news = page.tasks.filter(({ index }) => index <= range.last && !this.#told.has(index));
      for (const { index } of news) this.#told.add(index);
      if (news.length > 0) await this.#watched.ended(news);
      from = page.next;
    }
  }
}
