/** Open jobs, beyond what dispatch knows: how far they are, who waits for their end, and which are on their way from the store to dispatch. */

import { now } from "../base/clock.js";
import { type Decisions, onJobAdded, onJobRefused, type State } from "../dispatch/index.js";
import { onRerun } from "../dispatch/rerun.js";
import { JobId } from "../model/ids.js";
import type { Counters, Job, JobEnd } from "../model/job.js";
import type { RecoveredState, TaskRange } from "../model/store.js";
import type { EventBody } from "./events.js";
import type { Decide } from "./pending-requests.js";
import { Watchers } from "./watchers.js";

export class OpenJobs {
  readonly endWatchers = new Watchers<JobId, JobEnd>();
  readonly #state: State;
  readonly #decide: Decide;
  /** As the store last said. */
  readonly #counters = new Map<JobId, Counters>();
  #nextJob: JobId | undefined;
  readonly #locks = new Map<JobId, Promise<void>>();
  readonly #revisions = new Map<JobId, number>();
  #changeCount = 0;

  constructor(state: State, decide: Decide) {
    this.#state = state;
    this.#decide = decide;
  }

  /** How far an open job is. */
  countersOf(job: JobId): Counters | undefined {
    return this.#counters.get(job);
  }

  load({ jobs, nextJob }: RecoveredState): void {
    for (const { id, counters } of jobs) this.#counters.set(id, counters);
    this.#nextJob = nextJob;
  }

  /** A number for a new job, where this broker gives them. */
  nextNumber(): JobId | undefined {
    const id = this.#nextJob;
    if (id !== undefined) this.#nextJob = JobId(id + 1);
    return id;
  }

  /** The store would not take a job that dispatch knows already. */
  submitRefused(job: JobId): void {
    this.#counters.delete(job);
    this.#decide((out) => onJobRefused(this.#state, out, job, now()));
  }

  /** A job was stored; `ends` are those of the jobs that it waits for. */
  stored(job: Job, parcel: TaskRange | undefined, ends: ReadonlyMap<JobId, JobEnd>): void {
    this.#counters.set(job.id, job.counters);
    this.#decideKnowing(ends, (out, finished) => onJobAdded(this.#state, out, job, parcel, finished, now()));
  }

  /** Tasks of a job wait again. */
  rerun(job: Job, parcels: readonly TaskRange[], ends: ReadonlyMap<JobId, JobEnd>): void {
    this.#counters.set(job.id, job.counters);
    this.#decideKnowing(ends, (out, finished) => onRerun(this.#state, out, job, parcels, finished, now()));
  }

  /** Another number after each change here: what the store said of the job before that may be out of date. */
  revisionOf(job: JobId): number {
    return this.#revisions.get(job) ?? 0;
  }

  onEvent(event: EventBody): void {
    if ("job" in event && event.kind !== "tasks-ended") {
      if (event.kind === "job-ended" || event.kind === "job-removed") this.#revisions.delete(event.job);
      else this.#revisions.set(event.job, ++this.#changeCount);
    }
    if (event.kind === "tasks-ended" && this.#counters.has(event.job)) this.#counters.set(event.job, event.counters);
    if (event.kind !== "job-ended") return;
    this.#counters.delete(event.job);
    this.endWatchers.notify(event.job, event.state);
  }

  /** Nobody else changes this job until `act` is over: dispatch does not know yet what the store knows. */
  withLock<T>(job: JobId, act: () => Promise<T>): Promise<T> {
    const acting = (this.#locks.get(job) ?? Promise.resolve()).then(act);
    const over = acting.then(
      () => {},
      () => {},
    );
    this.#locks.set(job, over);
    void over.then(() => {
      if (this.#locks.get(job) === over) this.#locks.delete(job);
    });
    return acting;
  }

  /** Resolves when what the store knows of this job is known to dispatch too. */
  async unlocked(job: JobId): Promise<void> {
    for (let entering = this.#locks.get(job); entering !== undefined; entering = this.#locks.get(job)) {
      await entering;
    }
  }

  /** Let dispatch know these ends while it decides: it remembers the latest only. */
  #decideKnowing(ends: ReadonlyMap<JobId, JobEnd>, step: (out: Decisions, finished: ReadonlySet<JobId>) => void): void {
    const told = [...ends].filter(([job]) => !this.#state.recentEnds.has(job));
    for (const [job, end] of told) this.#state.recentEnds.set(job, end);
    this.#decide((out) => step(out, new Set(ends.keys())));
    for (const [job] of told) this.#state.recentEnds.delete(job);
  }
}
