/**
 * Jobs of equal priority share slots. Each job carries the sum of the slots it was given, and the smallest sum goes first: the
 * order of deficit round robin without its rounds. A job that begins to wait has no claim to the slots of the time before, so it
 * begins at the level of the job served last by a worker that could have served it. Levels are kept per signature, because the
 * sums of jobs that never share a worker cannot be compared.
 */
import type { JobState, Signature, WorkerState } from "./state.js";

/** The job begins to wait: level with those that it will compete with. */
export function raiseToShareLevel(job: JobState): void {
  job.served = Math.max(job.served, job.signature.shareLevels.get(job.job.priority) ?? 0);
}

/** `count` tasks of the job were assigned to this worker. */
export function charge(job: JobState, worker: WorkerState, count: number): void {
  const { priority, requirement } = job.job;
  job.served += count * requirement.needs.slots;
  worker.shareLevels.set(priority, job.served);
  for (const signature of worker.capableOf) signature.shareLevels.set(priority, job.served);
}

/** Tasks came back that never ran. The caller puts the job in its place again. */
export function refund(job: JobState, count: number): void {
  job.served = Math.max(0, job.served - count * job.job.requirement.needs.slots);
}

/**
 * A signature has its first worker. What waits for it has had nothing while that worker served others, and would have the
 * worker to itself until it caught up.
 */
export function copyShareLevels(signature: Signature, worker: WorkerState): void {
  for (const [priority, level] of worker.shareLevels) {
    signature.shareLevels.set(priority, Math.max(level, signature.shareLevels.get(priority) ?? 0));
  }
  if (worker.shareLevels.size === 0) return;
  for (const job of [...signature.jobs]) {
    raiseToShareLevel(job);
    signature.jobs.upsert(job);
  }
}
