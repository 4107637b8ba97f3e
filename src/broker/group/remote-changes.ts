/**
 * Changes of jobs by other brokers and by transactions of applications. The store sends hints, some of which are lost.
 * So the change marks of all open jobs are also polled, and jobs with a new mark are read in full.
 *
 * The result of a read may be older than a change made here. So a job is read again if it was changed here during the
 * read, and stored counters are used only if no commit of this broker has changed them meanwhile.
 */
import { now } from "../../base/clock.js";
import { asLaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { onHold, onJobEdited, onJobsDue, onMayLease, onProgress, onRemoteCancel } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, type Job, type JobEnd } from "../../model/job.js";
import { countOf, difference, type Ranges } from "../../model/ranges.js";
import type { Group, JobSummary, Submissions } from "../../model/store-group.js";
import type { Core } from "../core.js";
import { endsOf } from "../dependencies.js";
import type { EventBody } from "../events.js";
import { submitFromTransaction } from "../operations/jobs.js";

/** How often all open jobs are polled. With many jobs polling takes at most a tenth of the time. */
const POLL_MS = 1_000;
const POLL_COST_FACTOR = 10;
/** Jobs read at the same time. */
const AT_ONCE = 8;
const READS = 5;

interface RemoteChangesOptions {
  readonly log: Log;
  /** Called when a value in this bucket of the store has changed. */
  readonly onTextChanged: (bucket: string) => void;
  /** Called when tasks that counted against limits have ended at another broker. */
  readonly onLimitsFreed: () => void;
  /** Called when a transaction of an application has submitted a job. */
  readonly onSubmitted: () => void;
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
    this.#group.listen(({ job, bucket, submitted, limits }) => {
      if (this.#over) return;
      if (limits === true) this.#options.onLimitsFreed();
      if (submitted === true) this.#options.onSubmitted();
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
      if (!this.#core.state.jobs.has(job)) await this.#read(job, true);
    }
  }

  /** Tasks of another broker may have become free to lease. */
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
      const { job, changeMark, ownChanges } = summary;
      open.add(job);
      const changed = this.#marks.get(job) !== changeMark && !ownChanges;
      // A job that has ended here meanwhile was open before.
      if (changed || !(state.jobs.has(job) || before.has(job))) this.#due.add(job);
      else this.#applySummary(summary, before.get(job));
      this.#marks.set(job, changeMark);
    }
    for (const job of this.#marks.keys()) if (!open.has(job)) this.#marks.delete(job);
    for (const job of before.keys()) if (!open.has(job) && state.jobs.has(job)) this.#due.add(job);
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

  /** `wanted`: also if its start is delayed. */
  #read(job: JobId, wanted = false): Promise<void> {
    const before = (this.#reading.get(job) ?? Promise.resolve()).catch(() => {});
    const reading = before.then(() => this.#readJob(job, wanted));
    this.#reading.set(job, reading);
    const done = (): void => {
      if (this.#reading.get(job) === reading) this.#reading.delete(job);
    };
    reading.then(done, done);
    return reading;
  }

  async #readJob(id: JobId, wanted: boolean): Promise<void> {
    const { jobs, state, store } = this.#core;
    for (let reads = 0; reads < READS && !this.#over; reads++) {
      await jobs.unlocked(id);
      const revision = jobs.revisionOf(id);
      const counters = jobs.countersOf(id);
      let job = await store.job(id);
      if (job === undefined && !state.jobs.has(id) && this.#group.submissions !== undefined) {
        // A job in the submissions is not stored yet. It was not removed.
        if (await this.#group.submissions.waits(id)) return;
        job = await store.job(id);
      }
      if (this.#over) return;
      if (jobs.revisionOf(id) !== revision) continue;
      if (job === undefined || job.ended !== undefined || state.jobs.has(id)) {
        applyJob(this.#core, id, job, jobs.countersOf(id) === counters);
        return;
      }
      if (job.delayed === true && !wanted) {
        this.#core.delays.added(job);
        return;
      }
      // Read once more: it may have changed while it was added.
      await addRemoteJob(this.#core, job);
    }
    this.#due.add(id);
  }
}

/** Applies a change of a job by another broker to dispatch, to callers that wait for its end, and to the events. */

/** Ranges listed in one event. */
const LISTED = 256;

/** Adds a job that was submitted to another broker to dispatch. */
async function addRemoteJob(core: Core, job: Job): Promise<void> {
  await core.jobs.withLock(job.id, async () => {
    const others: JobId[] = [];
    // A dependency that was removed has succeeded. If it had failed, this job would have been cancelled.
    for (const { job: other } of job.after) if ((await core.store.job(other)) !== undefined) others.push(other);
    const ends = others.length === 0 ? new Map<JobId, JobEnd>() : await endsOf(core, others);
    if (core.state.jobs.has(job.id)) return;
    core.jobs.stored(job, undefined, ends);
    core.decide((out) => onMayLease(core.state, out, job.id));
    core.publish([{ kind: "job-added", job: job.id, name: job.name, count: job.count }]);
  });
}

/** Applies a job as the store has it; undefined if it was removed. Its counters are used only if `countersValid`. */
function applyJob(core: Core, id: JobId, job: Job | undefined, countersValid: boolean): void {
  const known = core.state.jobs.get(id);
  if (job === undefined) {
    // It has ended and was removed. The broker that saw its end has cancelled the jobs that depend on it.
    if (known !== undefined) endJob(core, id, core.jobs.countersOf(id) ?? known.job.counters, "succeeded");
    core.publish([{ kind: "job-removed", job: id }]);
    return;
  }
  if (job.ended !== undefined) {
    if (known !== undefined) endJob(core, id, job.counters, job.ended.state);
    else core.jobs.endWatchers.notify(id, job.ended.state);
    return;
  }
  if (known === undefined) return;
  if (known.delayed && known.job.delayed === true && job.delayed === undefined)
    core.decide((out) => onJobsDue(core.state, out, [id], now()));
  if (isEdited(known.job, job)) {
    core.decide((out) => onJobEdited(core.state, out, job, now()));
    core.publish([{ kind: "job-edited", job: id, name: job.name, count: job.count }]);
  }
  if (known.held !== job.held) {
    core.decide((out) => onHold(core.state, out, id, job.held, now()));
    core.publish([{ kind: job.held ? "job-held" : "job-released", job: id }]);
  }
  applyCancels(core, job, known.cancels);
  if (countersValid) applyProgress(core, id, job.counters);
}

const isEdited = (before: Job, { name, priority, count, open, limits }: Job): boolean =>
  before.name !== name ||
  before.priority !== priority ||
  before.count !== count ||
  before.open !== open ||
  before.limits.maxRunning !== limits.maxRunning ||
  before.limits.timeLimitMs !== limits.timeLimitMs;

function applyCancels(core: Core, job: Job, before: Ranges): void {
  const known = core.state.jobs.get(job.id);
  const again = before.flatMap((range) => difference(range, job.cancels));
  if (known !== undefined && again.length > 0) {
    // Rerun at another broker: the tasks wait there, or can be leased.
    known.cancels = job.cancels;
    core.decide((out) => onMayLease(core.state, out, job.id));
    core.publish([{ kind: "job-rerun", job: job.id, count: countOf(again) }]);
  }
  const added = job.cancels.flatMap((range) => difference(range, before));
  if (added.length === 0) return;
  core.decide((out) => onRemoteCancel(core.state, out, job.id, added));
  const reason = job.reason === undefined ? {} : { reason: job.reason };
  core.publish([{ kind: "job-cancelled", job: job.id, tasks: added.slice(0, LISTED), ...reason }]);
}

/** Applies the stored counters of an open job. */
function applyProgress(core: Core, id: JobId, counters: Counters): void {
  const before = core.jobs.countersOf(id);
  if (before === undefined || sameCounters(before, counters)) return;
  core.publish([tasksEnded(id, counters)]);
  core.decide((out) => onProgress(core.state, out, id, { counters }, now()));
  // Fewer ended tasks than before: some are rerun and may be leased here.
  if (finishedCount(counters) < finishedCount(before)) core.decide((out) => onMayLease(core.state, out, id));
}

function endJob(core: Core, id: JobId, counters: Counters, ended: JobEnd): void {
  core.publish([tasksEnded(id, counters), { kind: "job-ended", job: id, state: ended, counters }]);
  core.decide((out) => onProgress(core.state, out, id, { counters, ended }, now()));
}

const sameCounters = (a: Counters, b: Counters): boolean =>
  a.succeeded === b.succeeded && a.failed === b.failed && a.cancelled === b.cancelled;

/** This broker does not know which tasks. */
const tasksEnded = (job: JobId, counters: Counters): EventBody => ({
  kind: "tasks-ended",
  job,
  succeeded: [],
  failed: [],
  cancelled: [],
  truncated: true,
  counters,
});

// Makes the jobs that transactions of applications have submitted to the database.

/** How long and how often to look for a submitted job. One that is not found by then cannot be created. */
const FIND_MS = 60_000;
const PAUSE_MS = 20;

export class TransactionSubmissions {
  readonly #core: Core;
  readonly #submissions: Submissions;
  readonly #log: Log;
  #taking = false;
  #again = false;

  constructor(core: Core, submissions: Submissions, log: Log) {
    this.#core = core;
    this.#submissions = submissions;
    this.#log = log;
  }

  /** A submitted job that may not be stored yet, because another broker is storing it. */
  async find(id: JobId): Promise<Job | undefined> {
    const end = now() + FIND_MS;
    let found: Job | undefined;
    while (found === undefined && now() < end && (await this.#submissions.waits(id))) {
      await this.take();
      found = await this.#core.store.job(id);
      if (found === undefined) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    // It may have moved from the submissions to the store since the caller looked for it.
    return found ?? this.#core.store.job(id);
  }

  /** Takes waiting submissions: after a notification, and with each poll. */
  async take(): Promise<void> {
    this.#again = true;
    if (this.#taking) return;
    this.#taking = true;
    try {
      while (this.#again && !this.#core.stopping && this.#core.refusing === undefined) {
        this.#again = false;
        const more = await this.#submissions.take((one) => submitFromTransaction(this.#core, one));
        this.#again ||= more;
      }
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (!this.#core.stopping) this.#log.warn({ code }, `cannot read what transactions have submitted: ${message}`);
    } finally {
      this.#taking = false;
    }
  }
}
