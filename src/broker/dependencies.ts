/**
 * The dependencies of jobs: the ends of other jobs or of single tasks. Dispatch knows the open and the recently ended
 * jobs, the store knows all. A job may end while the store is read. So both are read until each job is open in dispatch
 * or its end is known.
 */
import { now } from "../base/clock.js";
import { LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import { onEachEnded, type State } from "../dispatch/index.js";
import type { JobId } from "../model/ids.js";
import type { Dependency, Job, JobEnd } from "../model/job.js";
import type { TaskEnd } from "../model/outcome.js";
import { ALL_TASKS, countOf, normalize, type Ranges, rangesOf } from "../model/ranges.js";
import type { Store } from "../model/store.js";
import type { Core } from "./core.js";
import type { EventBody } from "./events.js";

const ROUNDS = 100;

/** The part of the core that is used here. */
interface JobLookup {
  readonly store: Store;
  readonly state: State;
  readonly loadJobs: (jobs: readonly JobId[]) => Promise<void>;
}

/**
 * The ends of the ended jobs. When it resolves, each other job is open in dispatch, and stays open until the caller's
 * next await. Rejects with LABORO_NO_SUCH_JOB.
 */
export async function endsOf(
  { store, state, loadJobs }: JobLookup,
  jobs: readonly JobId[],
): Promise<Map<JobId, JobEnd>> {
  const ends = new Map<JobId, JobEnd>();
  for (let round = 0; ; round++) {
    const unknown = jobs.filter((job) => !state.jobs.has(job) && !ends.has(job));
    if (unknown.length === 0) break;
    for (const job of unknown) {
      const end = state.recentEnds.get(job) ?? (await existing(store, job)).ended?.state;
      if (end !== undefined) ends.set(job, end);
    }
    if (round === ROUNDS)
      throw new LaboroError("LABORO_INTERNAL", `jobs ${unknown.join(", ")}: neither open nor ended`);
    // A job that is stored and not in dispatch is being added, or was submitted to another broker.
    await loadJobs(unknown.filter((job) => !ends.has(job)));
    await new Promise((resolve) => setTimeout(resolve, round));
  }
  // A job that had ended may have been rerun meanwhile.
  for (const job of jobs) if (state.jobs.has(job)) ends.delete(job);
  return ends;
}

async function existing(store: Store, id: JobId): Promise<Job> {
  const job = await store.job(id);
  if (job === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${id}`);
  return job;
}

/** At the start: the ends of the jobs that these depend on and that have ended, and those that are delayed. */
export async function storedDependencies(
  store: Store,
  jobs: readonly Job[],
): Promise<{ readonly ends: Map<JobId, JobEnd>; readonly delayed: readonly Job[] }> {
  const open = new Set(jobs.map(({ id }) => id));
  const others = new Set(jobs.flatMap(({ after }) => after.map(({ job }) => job)).filter((id) => !open.has(id)));
  const ends = new Map<JobId, JobEnd>();
  const delayed: Job[] = [];
  for (const id of others) {
    const job = await store.job(id);
    if (job?.ended !== undefined) ends.set(id, job.ended.state);
    if (job?.delayed === true) delayed.push(job);
  }
  return { ends, delayed };
}

/** Throws LABORO_JOB_ENDED if one of these jobs has ended without success, and success is required. */
export function refuseFailedDependencies(after: readonly Dependency[], ends: ReadonlyMap<JobId, JobEnd>): void {
  for (const { job, any, each } of after) {
    const end = ends.get(job);
    if (end === undefined || any || each === true || end === "succeeded") continue;
    throw new LaboroError("LABORO_JOB_ENDED", `job ${job}, which this one waits for, has ${end}`);
  }
}

// Tells dispatch which tasks have ended, for jobs that depend on them task by task (dispatch/each.ts).

const PAGE = 10_000;
const RETRY_MS = 1_000;

export class EachDependencies {
  readonly #core: Core;
  readonly #log: Log;
  /** Jobs whose results are being read; true where they are to be read once more. */
  readonly #reading = new Map<JobId, boolean>();

  constructor(core: Core, log: Log) {
    this.#core = core;
    this.#log = log;
  }

  /** The job is in dispatch, or will be in a moment. */
  added({ after }: Job): void {
    for (const { job, each } of after) if (each === true) this.#read(job);
  }

  onEvent(event: EventBody): void {
    const { state } = this.#core;
    if (!("job" in event) || event.job === undefined || !state.eachWaiting.has(event.job)) return;
    const { job } = event;
    if (event.kind === "tasks-ended" && !event.truncated)
      this.#tell(job, event.succeeded, normalize([...event.failed, ...event.cancelled]), false);
    else if (event.kind === "job-ended" && event.state === "succeeded") this.#tell(job, [ALL_TASKS], [], true);
    else if (event.kind === "tasks-ended" || event.kind === "job-ended" || event.kind === "job-removed")
      this.#read(job);
  }

  #tell(job: JobId, succeeded: Ranges, failed: Ranges, final: boolean): void {
    this.#core.decide((out) => onEachEnded(this.#core.state, out, job, { succeeded, failed, final }, now()));
  }

  #read(job: JobId): void {
    if (this.#reading.has(job)) {
      this.#reading.set(job, true);
      return;
    }
    this.#reading.set(job, false);
    void this.#readResults(job)
      .catch((cause: unknown) => {
        this.#log.info({ job, error: String(cause) }, "cannot read the results that tasks wait for; trying again");
        this.#reading.set(job, true);
        return new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref());
      })
      .then(() => {
        const again = this.#reading.get(job) === true;
        this.#reading.delete(job);
        if (again && !this.#core.stopping) this.#read(job);
      });
  }

  async #readResults(id: JobId): Promise<void> {
    const { store, state } = this.#core;
    // Read the job before its results: if it has ended, the results are complete.
    const job = await store.job(id);
    // A removed job has succeeded: any other end was reported before the removal.
    if (job === undefined) return this.#tell(id, [ALL_TASKS], [], true);
    const succeeded = await this.#indices(id, ["succeeded"]);
    // Some of its results are gone: it is being removed.
    if (job.ended !== undefined && countOf(succeeded) < job.counters.succeeded)
      return this.#tell(id, [ALL_TASKS], [], true);
    const failed = await this.#indices(id, ["failed", "cancelled"]);
    // It may have been rerun meanwhile.
    this.#tell(id, succeeded, failed, job.ended !== undefined && !state.jobs.has(id));
  }

  async #indices(job: JobId, states: readonly TaskEnd[]): Promise<Ranges> {
    const found: number[] = [];
    for (let from: number | undefined = 0; from !== undefined; ) {
      const page = await this.#core.store.results(job, { from, limit: PAGE, filter: { states } });
      for (const { index } of page.results) found.push(index);
      from = page.next;
    }
    return rangesOf(found);
  }
}
