/**
 * Changes that other brokers make to jobs. The store sends hints, some of which are lost, so all open jobs are also polled: their change
 * marks are read, and jobs whose mark has changed are read in full.
 *
 * What was read may be older than a change made here meanwhile. So a job is read again if it was changed here during the read, and stored
 * counters are used only if no commit of this broker has changed them meanwhile.
 */

import { now } from "../../base/clock.js";
import { asLaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { onMayLease } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import type { Counters } from "../../model/job.js";
import type { Group, JobSummary } from "../../model/store-group.js";
import type { Core } from "../core.js";
import { addRemoteJob, applyJob, applyProgress } from "./job-changes.js";

/** How often all open jobs are polled. With many jobs polling takes at most a tenth of the time. */
const POLL_MS = 1_000;
const POLL_COST_FACTOR = 10;
/** Jobs read at the same time. */
const AT_ONCE = 8;
const READS = 5;

export interface RemoteChangesOptions {
  readonly log: Log;
  /** A value in this bucket of the store has changed. */
  readonly onTextChanged: (bucket: string) => void;
  /** Called after each poll. */
  readonly onPolled: () => void;
}

export class RemoteChanges {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: RemoteChangesOptions;
  readonly #marks = new Map<JobId, string>();
  readonly #due = new Set<JobId>();
  readonly #reading = new Map<JobId, Promise<void>>();
  #readingDue: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #over = false;
  #warned = false;

  constructor(core: Core, group: Group, options: RemoteChangesOptions) {
    this.#core = core;
    this.#group = group;
    this.#options = options;
  }

  start(): void {
    this.#group.listen(({ job, bucket }) => {
      if (this.#over) return;
      if (bucket !== undefined) this.#options.onTextChanged(bucket);
      if (job === undefined) return;
      this.#due.add(job);
      this.#readDue();
    });
    this.#schedulePoll(0);
  }

  stop(): void {
    this.#over = true;
    clearTimeout(this.#timer);
  }

  /** Resolves when dispatch knows each of these jobs that is open. */
  async loadJobs(jobs: readonly JobId[]): Promise<void> {
    for (const job of [...new Set(jobs)].sort((a, b) => a - b)) {
      if (!this.#core.state.jobs.has(job)) await this.#read(job);
    }
  }

  /** Tasks of another broker may be leased now. */
  retryLeases(): void {
    for (const job of [...this.#core.state.jobs.keys()])
      this.#core.decide((out) => onMayLease(this.#core.state, out, job));
  }

  #schedulePoll(ms: number): void {
    if (this.#over) return;
    this.#timer = setTimeout(() => {
      const begun = now();
      void this.#poll()
        .then(() => {
          this.#warned = false;
        })
        .catch((cause: unknown) => this.#warn(cause))
        .then(() => this.#schedulePoll(Math.max(POLL_MS, (now() - begun) * POLL_COST_FACTOR)));
    }, ms);
  }

  #warn(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    if (!this.#over && !this.#warned) this.#options.log.warn({ code }, `cannot read the open jobs: ${message}`);
    this.#warned = true;
  }

  async #poll(): Promise<void> {
    const { state, jobs } = this.#core;
    const before = new Map([...state.jobs.keys()].map((job) => [job, jobs.countersOf(job)]));
    const summaries = await this.#group.jobSummaries();
    if (this.#over) return;
    const open = new Set<JobId>();
    for (const summary of summaries) {
      const { job, changeMark } = summary;
      open.add(job);
      if (this.#marks.get(job) !== changeMark || !state.jobs.has(job)) this.#due.add(job);
      else this.#applySummary(summary, before.get(job));
      this.#marks.set(job, changeMark);
    }
    for (const job of this.#marks.keys()) if (!open.has(job)) this.#marks.delete(job);
    for (const job of before.keys()) if (!open.has(job)) this.#due.add(job);
    for (const job of jobs.endWatchers.keys()) if (!state.jobs.has(job)) this.#due.add(job);
    await this.#readDue();
    this.#options.onPolled();
  }

  #applySummary({ job, counters, mayLease }: JobSummary, before: Counters | undefined): void {
    const known = this.#core.state.jobs.get(job);
    if (mayLease && known?.mayLease === false) this.#core.decide((out) => onMayLease(this.#core.state, out, job));
    if (this.#core.jobs.countersOf(job) === before) applyProgress(this.#core, job, counters);
  }

  /** Reads the jobs that are due, a few at a time. A job that fails is due again at the next poll. */
  #readDue(): Promise<void> {
    this.#readingDue ??= this.#readAllDue().finally(() => {
      this.#readingDue = undefined;
    });
    return this.#readingDue;
  }

  async #readAllDue(): Promise<void> {
    while (this.#due.size > 0 && !this.#over) {
      const some = [...this.#due].slice(0, AT_ONCE);
      for (const job of some) this.#due.delete(job);
      await Promise.all(
        some.map((job) =>
          this.#read(job).catch((cause: unknown) => {
            this.#marks.delete(job);
            this.#warn(cause);
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
      await jobs.unlocked(id);
      const revision = jobs.revisionOf(id);
      const counters = jobs.countersOf(id);
      const job = await store.job(id);
      if (this.#over) return;
      if (jobs.revisionOf(id) !== revision) continue;
      if (job === undefined || job.ended !== undefined || state.jobs.has(id)) {
        applyJob(this.#core, id, job, jobs.countersOf(id) === counters);
        return;
      }
      // Then it is read once more: it may have been changed while it was added.
      await addRemoteJob(this.#core, job);
    }
    this.#due.add(id);
  }
}
