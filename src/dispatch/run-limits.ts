/**
 * `maxRunning`: at most so many tasks of a job run at once. A worker may hold more of them, prefetched, because each assignment tells it
 * how many of the job it may run at once. What all workers with tasks of the job may run together is within the limit:
 *
 *     sum over the workers of min(assigned, atOnce) ≤ maxRunning
 *
 * Tasks for free slots raise `atOnce`, prefetched ones do not. So a worker counts only for what it runs, and the rest of the limit is left to
 * other workers.
 */
import type { JobState, WorkerState } from "./state.js";

/** The tasks of a job with `maxRunning` at one worker. */
export interface RunShare {
  assigned: number;
  /** How many it may run at once, by the last assignment. After a start of the broker that is not known: then the job's limit. */
  atOnce: number;
}

const most = ({ assigned, atOnce }: RunShare): number => Math.min(assigned, atOnce);

/** How many more tasks of the job may run. May be negative after a start of the broker, when each `atOnce` is assumed to be the limit. */
export function spareRuns(job: JobState): number {
  const { maxRunning } = job.job.limits;
  return maxRunning === undefined ? Number.POSITIVE_INFINITY : maxRunning - job.mostRunning;
}

/** How many tasks of a job with `maxRunning` the worker may run at once, with those that it has. */
export function runsAtMost(worker: WorkerState, job: JobState): number {
  const share = worker.runShares.get(job);
  return share === undefined ? 0 : most(share);
}

/** Counts tasks of the job that the worker got, or with a negative `count` no longer has. */
export function countRuns(worker: WorkerState, job: JobState, count: number): void {
  const { maxRunning } = job.job.limits;
  if (maxRunning === undefined) return;
  const { assigned, atOnce } = worker.runShares.get(job) ?? { assigned: 0, atOnce: maxRunning };
  setRunShare(worker, job, { assigned: assigned + count, atOnce });
}

/** The job has a limit from now on: workers run what they have. */
export function beginRunShares(job: JobState): void {
  for (const claim of job.claims) {
    const assigned = claim.open + (claim.worker.runShares.get(job)?.assigned ?? 0);
    setRunShare(claim.worker, job, { assigned, atOnce: Number.POSITIVE_INFINITY });
  }
}

/** The next assignment to the worker carries this `atOnce`. */
export function setAtOnce(worker: WorkerState, job: JobState, atOnce: number): void {
  setRunShare(worker, job, { assigned: worker.runShares.get(job)?.assigned ?? 0, atOnce });
}

function setRunShare(worker: WorkerState, job: JobState, share: RunShare): void {
  job.mostRunning += most(share) - runsAtMost(worker, job);
  if (share.assigned === 0) worker.runShares.delete(job);
  else worker.runShares.set(job, share);
}

/** How many prefetched tasks of the job may take free slots of the worker. */
export function mayPlace(worker: WorkerState, job: JobState): number {
  const share = worker.runShares.get(job);
  if (share === undefined) return Number.POSITIVE_INFINITY;
  let placed = 0;
  for (const claim of worker.claims.get(job.id) ?? []) placed += claim.placed;
  return share.atOnce - placed;
}
