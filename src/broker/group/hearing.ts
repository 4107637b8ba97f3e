/**
 * What other brokers do to jobs. The store tells of it by hints, some of which are missed, so that every open job is also looked at
 * now and then: by its mark, and where that is another than before, in full.
 *
 * What the store says is older than what this broker does meanwhile. So a job is read again where it was changed here during the
 * question; and counters count only where none came from a commit of our own in between.
 */

import { now } from "../../base/clock.js";
import { asLaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { onMore } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import type { Counters } from "../../model/job.js";
import type { Group, JobMark } from "../../model/store.js";
import type { Core } from "../core.js";
import { enterJob, heedJob, heedProgress } from "./job-news.js";

/** How often all open jobs are looked at; where they are many, a tenth of the time goes into it at most. */
const LOOK_MS = 1_000;
const LOOK_PART = 10;
/** Jobs read at the same time. */
const AT_ONCE = 8;
const READS = 5;

export interface HearingOptions {
  readonly log: Log;
  /** A text was kept in this area. */
  readonly kept: (area: string) => void;
  /** Called with each look. */
  readonly looked: () => void;
}

export class Hearing {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: HearingOptions;
  readonly #marks = new Map<JobId, string>();
  readonly #due = new Set<JobId>();
  readonly #reading = new Map<JobId, Promise<void>>();
  #following: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #over = false;
  #complained = false;

  constructor(core: Core, group: Group, options: HearingOptions) {
    this.#core = core;
    this.#group = group;
    this.#options = options;
  }

  start(): void {
    this.#group.listen(({ job, area }) => {
      if (this.#over) return;
      if (area !== undefined) this.#options.kept(area);
      if (job === undefined) return;
      this.#due.add(job);
      this.#follow();
    });
    this.#lookIn(0);
  }

  stop(): void {
    this.#over = true;
    clearTimeout(this.#timer);
  }

  /** Resolves when each of these that is open is known to dispatch. */
  async learn(jobs: readonly JobId[]): Promise<void> {
    for (const job of [...new Set(jobs)].sort((a, b) => a - b)) {
      if (!this.#core.state.jobs.has(job)) await this.#read(job);
    }
  }

  /** Something may be leased that was another broker's. */
  more(): void {
    for (const job of [...this.#core.state.jobs.keys()]) this.#core.decide((out) => onMore(this.#core.state, out, job));
  }

  #lookIn(ms: number): void {
    if (this.#over) return;
    this.#timer = setTimeout(() => {
      const begun = now();
      void this.#look()
        .then(() => {
          this.#complained = false;
        })
        .catch((cause: unknown) => this.#complain(cause))
        .then(() => this.#lookIn(Math.max(LOOK_MS, (now() - begun) * LOOK_PART)));
    }, ms);
  }

  #complain(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    if (!this.#over && !this.#complained) this.#options.log.warn({ code }, `jobs cannot be looked at: ${message}`);
    this.#complained = true;
  }

  async #look(): Promise<void> {
    const { state, jobs } = this.#core;
    const before = new Map([...state.jobs.keys()].map((job) => [job, jobs.countersOf(job)]));
    const marks = await this.#group.marks();
    if (this.#over) return;
    const open = new Set<JobId>();
    for (const mark of marks) {
      open.add(mark.job);
      if (this.#marks.get(mark.job) !== mark.mark || !state.jobs.has(mark.job)) this.#due.add(mark.job);
      else this.#heedMark(mark, before.get(mark.job));
      this.#marks.set(mark.job, mark.mark);
    }
    for (const job of this.#marks.keys()) if (!open.has(job)) this.#marks.delete(job);
    for (const job of before.keys()) if (!open.has(job)) this.#due.add(job);
    for (const job of jobs.ends.keys()) if (!state.jobs.has(job)) this.#due.add(job);
    await this.#follow();
    this.#options.looked();
  }

  #heedMark({ job, counters, more }: JobMark, before: Counters | undefined): void {
    const known = this.#core.state.jobs.get(job);
    if (more && known?.more === false) this.#core.decide((out) => onMore(this.#core.state, out, job));
    if (this.#core.jobs.countersOf(job) === before) heedProgress(this.#core, job, counters);
  }

  /** Reads what is due, a few at a time. One that fails is due again with the next look. */
  #follow(): Promise<void> {
    this.#following ??= this.#followAll().finally(() => {
      this.#following = undefined;
    });
    return this.#following;
  }

  async #followAll(): Promise<void> {
    while (this.#due.size > 0 && !this.#over) {
      const some = [...this.#due].slice(0, AT_ONCE);
      for (const job of some) this.#due.delete(job);
      await Promise.all(
        some.map((job) =>
          this.#read(job).catch((cause: unknown) => {
            this.#marks.delete(job);
            this.#complain(cause);
          }),
        ),
      );
    }
  }

  #read(job: JobId): Promise<void> {
    const reading = (this.#reading.get(job) ?? Promise.resolve()).catch(() => {}).then(() => this.#readJob(job));
    this.#reading.set(job, reading);
    const done = (): void => {
      if (this.#reading.get(job) === reading) this.#reading.delete(job);
    };
    reading.then(done, done);
    return reading;
  }

  async #readJob(id: JobId): Promise<void> {
    const { jobs, state, store } = this.#core;
    for (let reads = 0; reads < READS && !this.#over; reads++) {
      await jobs.entered(id);
      const changes = jobs.changesOf(id);
      const counters = jobs.countersOf(id);
      const job = await store.job(id);
      if (this.#over) return;
      if (jobs.changesOf(id) !== changes) continue;
      if (job === undefined || job.ended !== undefined || state.jobs.has(id)) {
        heedJob(this.#core, id, job, jobs.countersOf(id) === counters);
        return;
      }
      // Read once more then: it may have been changed while it was entered.
      await enterJob(this.#core, job);
    }
    this.#due.add(id);
  }
}
