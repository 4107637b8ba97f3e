/**
 * How the jobs ended that a job waits for. Dispatch knows the open ones, and those that ended lately; the store knows all. Between a
 * question to the store and its answer a job may end, so the two are asked until every job is either open here or its end is known.
 */

import { LaboroError } from "../base/errors.js";
import type { State } from "../dispatch/index.js";
import type { JobId } from "../model/ids.js";
import type { Dependency, Job, JobEnd } from "../model/job.js";
import type { Store } from "../model/store.js";

const ROUNDS = 100;

/** What the core has for this. */
export interface JobLookup {
  readonly store: Store;
  readonly state: State;
  readonly loadJobs: (jobs: readonly JobId[]) => Promise<void>;
}

/**
 * The ends of those of these jobs that have ended. When it resolves, each of the others is open in dispatch, and stays so until
 * the caller's next await. Rejects with LABORO_NO_SUCH_JOB.
 */
export async function endsOf({ store, state, loadJobs: learn }: JobLookup, jobs: readonly JobId[]): Promise<Map<JobId, JobEnd>> {
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
    // One that is stored and not yet in dispatch is on its way there, or was given to another broker.
    await learn(unknown.filter((job) => !ends.has(job)));
    await new Promise((resolve) => setTimeout(resolve, round));
  }
  // One that had ended may have been let run again meanwhile.
  for (const job of jobs) if (state.jobs.has(job)) ends.delete(job);
  return ends;
}

async function existing(store: Store, id: JobId): Promise<Job> {
  const job = await store.job(id);
  if (job === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${id}`);
  return job;
}

/** What is known of the jobs that these wait for and that are not among them: for the opening of the doors. */
export async function storedDependencyEnds(store: Store, jobs: readonly Job[]): Promise<Map<JobId, JobEnd>> {
  const open = new Set(jobs.map(({ id }) => id));
  const others = new Set(jobs.flatMap(({ after }) => after.map(({ job }) => job)).filter((id) => !open.has(id)));
  const ends = new Map<JobId, JobEnd>();
  for (const id of others) {
    const state = (await store.job(id))?.ended?.state;
    if (state !== undefined) ends.set(id, state);
  }
  return ends;
}

/** Throws LABORO_JOB_ENDED where one of these jobs has not ended as is wanted of it. */
export function refuseFailedDependencies(after: readonly Dependency[], ends: ReadonlyMap<JobId, JobEnd>): void {
  for (const { job, any } of after) {
    const end = ends.get(job);
    if (end === undefined || any || end === "succeeded") continue;
    throw new LaboroError("LABORO_JOB_ENDED", `job ${job}, which this one waits for, has ${end}`);
  }
}
