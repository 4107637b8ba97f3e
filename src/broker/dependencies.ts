/**
 * How the jobs ended that a job depends on. Dispatch knows the open jobs and those that ended recently; the store knows all. A job may
 * end while the store is read, so both are read until each job is either open in dispatch or its end is known.
 */

import { LaboroError } from "../base/errors.js";
import type { State } from "../dispatch/index.js";
import type { JobId } from "../model/ids.js";
import type { Dependency, Job, JobEnd } from "../model/job.js";
import type { Store } from "../model/store.js";

const ROUNDS = 100;

/** The part of the core that is needed here. */
interface JobLookup {
  readonly store: Store;
  readonly state: State;
  readonly loadJobs: (jobs: readonly JobId[]) => Promise<void>;
}

/**
 * The ends of those jobs that have ended. When it resolves, each other job is open in dispatch, and stays open until the caller's
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
