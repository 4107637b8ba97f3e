/** Open jobs, beyond dispatch: counters, callers that wait for the end, a lock for changes of store and dispatch. */
import { now } from "../base/clock.js";
import { onRerun } from "../dispatch/commit-results.js";
import { type Decisions, onJobAdded, onJobRefused, type State } from "../dispatch/index.js";
import { JobId } from "../model/ids.js";
import type { Counters, Job, JobEnd } from "../model/job.js";
import type { RecoveredState, TaskRange } from "../model/store.js";
import type { Group } from "../model/store-group.js";
import { type EventBody, Watchers } from "./events.js";
import type { Decide } from "./pending-requests.js";

export class OpenJobs {
  readonly endWatchers = new Watchers<JobId, JobEnd>();
  readonly #state: State;
  readonly #decide: Decide;
  /** From the last commit or read. */
  readonly #counters = new Map<JobId, Counters>();
  /** The number of the next job, if this broker assigns them. */
  nextJob: JobId | undefined;
  readonly #locks = new Map<JobId, Promise<void>>();
  readonly #revisions = new Map<JobId, number>();
  #changeCount = 0;

  readonly #added: (job: Job) => void;

  constructor(state: State, decide: Decide, added: (job: Job) => void) {
    this.#state = state;
    this.#decide = decide;
    this.#added = added;
  }

  countersOf(job: JobId): Counters | undefined {
    return this.#counters.get(job);
  }

  load({ jobs, nextJob }: RecoveredState): void {
    for (const job of jobs) {
      this.#counters.set(job.id, job.counters);
      this.#added(job);
    }
    this.nextJob = nextJob;
  }

  /** A number for a new job, if this broker assigns them. */
  nextNumber(): JobId | undefined {
    const id = this.nextJob;
    if (id !== undefined) this.nextJob = JobId(id + 1);
    return id;
  }

  /** The store refused a job that dispatch knows already. */
  submitRefused(job: JobId): void {
    this.#counters.delete(job);
    this.#decide((out) => onJobRefused(this.#state, out, job, now()));
  }

  /** A job was stored; `ends` are the ends of the jobs that it depends on. */
  stored(job: Job, taskRange: TaskRange | undefined, ends: ReadonlyMap<JobId, JobEnd>): void {
    this.#counters.set(job.id, job.counters);
    this.#added(job);
    this.#decideKnowing(ends, (out) => onJobAdded(this.#state, out, job, taskRange, ends, now()));
  }

  /** Ended tasks of a job wait again. */
  rerun(job: Job, taskRanges: readonly TaskRange[], ends: ReadonlyMap<JobId, JobEnd>): void {
    this.#counters.set(job.id, job.counters);
    this.#added(job);
    this.#decideKnowing(ends, (out) => onRerun(this.#state, out, job, taskRanges, ends, now()));
  }

  /** Changes with each change here. What was read from the store before is then outdated. */
  revisionOf(job: JobId): number {
    return this.#revisions.get(job) ?? 0;
  }

  onEvent(event: EventBody): void {
    if ("job" in event && event.kind !== "tasks-ended") {
      if (event.kind === "job-ended" || event.kind === "job-removed") this.#revisions.delete(event.job);
      else this.#revisions.set(event.job, ++this.#changeCount);
    }
    if (event.kind === "tasks-ended" && this.#counters.has(event.job)) this.#counters.set(event.job, event.counters);
    if (event.kind === "job-removed") this.#state.recentEnds.delete(event.job);
    if (event.kind !== "job-ended") return;
    this.#counters.delete(event.job);
    this.endWatchers.notify(event.job, event.state);
  }

  /** Nobody else changes this job until `act` has ended, because dispatch and store may differ until then. */
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

  /** Resolves when dispatch and store agree on this job. */
  async unlocked(job: JobId): Promise<void> {
    for (let lock = this.#locks.get(job); lock !== undefined; lock = this.#locks.get(job)) {
      await lock;
    }
  }

  /** Adds these ends to dispatch for this decision. Dispatch remembers only recent ones. */
  #decideKnowing(ends: ReadonlyMap<JobId, JobEnd>, step: (out: Decisions) => void): void {
    const { recentEnds } = this.#state;
    const added = ends.size === 0 ? [] : [...ends].filter(([job]) => !recentEnds.has(job));
    for (const [job, end] of added) recentEnds.set(job, end);
    this.#decide(step);
    for (const [job] of added) recentEnds.delete(job);
  }
}

/** Numbers for jobs of a shared store. All that are requested in one turn, or during a query, come together. */
export class JobNumbers {
  readonly #group: Group;
  #waiting: ((number: JobId | undefined) => void)[] = [];
  #asking = false;

  constructor(group: Group) {
    this.#group = group;
  }

  /** Undefined if the store does not answer. Then it numbers the job when it stores it. */
  next(): Promise<JobId | undefined> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#asking) return;
      this.#asking = true;
      queueMicrotask(() => void this.#ask());
    });
  }

  async #ask(): Promise<void> {
    while (this.#waiting.length > 0) {
      const waiting = this.#waiting;
      this.#waiting = [];
      const numbers = await this.#group.jobNumbers(waiting.length).catch(() => []);
      for (const [i, resolve] of waiting.entries()) resolve(numbers[i]);
    }
    this.#asking = false;
  }
}
