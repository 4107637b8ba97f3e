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
import type { Group, JobSummary } from "../../model/store.js";
import type { Core } from "../core.js";
import { addRemoteJob, applyJob, applyProgress } from "./job-changes.js";

/** How often all open jobs are looked at; where they are many, a tenth of the time goes into it at most. */
const POLL_MS = 1_000;
const POLL_COST_FACTOR = 10;
/** Jobs read at the same time. */
const AT_ONCE = 8;
const READS = 5;

export interface RemoteChangesOptions {
  readonly log: Log;
  /** A text was kept in this area. */
  readonly onTextChanged: (area: string) => void;
  /** Called with each look. */
  readonly onPolled: () => void;
}

export class RemoteChanges {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: RemoteChangesOptions;
  readonly #marks = new Map<JobId, string>();
  readonly #due = new Set<JobId>();
  readonly #reading = new Map<JobId, Promise<void>>();
  #following: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #over = false;
  #warned = false;

  constructor(core: Core, group: Group, options: RemoteChangesOptions) {
    this.#core = core;
    this.#group = group;
    this.#options = options;
  }

  start(): void {
    this.#group.listen(({ job, bucket: area }) => {
      if (this.#over) return;
      if (area !== undefined) this.#options.onTextChanged(area);
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

  /** Resolves when each of these that is open is known to dispatch. */
  async loadJobs(jobs: readonly JobId[]): Promise<void> {
    for (const job of [...new Set(jobs)].sort((a, b) => a - b)) {
      if (!this.#core.state.jobs.has(job)) await this.#read(job);
    }
  }

  /** Something may be leased that was another broker's. */
  retryLeases(): void {
    for (const job of [...this.#core.state.jobs.keys()]) this.#core.decide((out) => onMore(this.#core.state, out, job));
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
    if (!this.#over && !this.#warned) this.#options.log.warn({ code }, `jobs cannot be looked at: ${message}`);
    this.#warned = true;
  }

  async #poll(): Promise<void> {
    const { state, jobs } = this.#core;
    const before = new Map([...state.jobs.keys()].map((job) => [job, jobs.countersOf(job)]));
    const marks = await this.#group.jobSummaries();
    if (this.#over) return;
    const open = new Set<JobId>();
    for (const mark of marks) {
      open.add(mark.job);
      if (this.#marks.get(mark.job) !== mark.changeMark || !state.jobs.has(mark.job)) this.#due.add(mark.job);
      else this.#applyMark(mark, before.get(mark.job));
      this.#marks.set(mark.job, mark.changeMark);
    }
    for (const job of this.#marks.keys()) if (!open.has(job)) this.#marks.delete(job);
    for (const job of before.keys()) if (!open.has(job)) this.#due.add(job);
    for (const job of jobs.endWatchers.keys()) if (!state.jobs.has(job)) this.#due.add(job);
    await this.#readDue();
    this.#options.onPolled();
  }

  #applyMark({ job, counters, mayLease: more }: JobSummary, before: Counters | undefined): void {
    const known = this.#core.state.jobs.get(job);
    if (more && known?.mayLease === false) this.#core.decide((out) => onMore(this.#core.state, out, job));
    if (this.#core.jobs.countersOf(job) === before) applyProgress(this.#core, job, counters);
  }

  /** Reads what is due, a few at a time. One that fails is due again with the next look. */
  #readDue(): Promise<void> {
    this.#following ??= this.#readAllDue().finally(() => {
      this.#following = undefined;
    });
    return this.#following;
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
      const changes = jobs.revisionOf(id);
      const counters = jobs.countersOf(id);
      const job = await store.job(id);
      if (this.#over) return;
      if (jobs.revisionOf(id) !== changes) continue;
      if (job === undefined || job.ended !== undefined || state.jobs.has(id)) {
        applyJob(this.#core, id, job, jobs.countersOf(id) === counters);
        return;
      }
      // Read once more then: it may have been changed while it was entered.
      await addRemoteJob(this.#core, job);
    }
    this.#due.add(id);
  }
}
