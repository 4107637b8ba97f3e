/**
 * Limits of running tasks: named limits, and `maxRunning` of one job (below).
 *
 * Named limits (model/limit.ts). A task counts against `running` from its assignment until its end is recorded, and
 * against the rate at its assignment. Tasks with a limit are not prefetched, because a worker may start all tasks that
 * it has.
 *
 * A single broker counts here. A signature is the work of jobs with the same limits; while one of these is full,
 * nothing of the signature is assigned. Starts of a rate are kept for its interval; a timer ends the wait for the
 * oldest of them.
 *
 * In a group the store counts. It grants no more leases than the limits permit, and leased tasks may run. A signature
 * whose lease was refused leases nothing until a task of the limit has ended, the rate permits another start, or the
 * rule has changed. `maxRunning` is a limit of a single job: a single broker counts it below, in a group the store
 * does.
 */
import type { JobId } from "../model/ids.js";
import type { Limits } from "../model/job.js";
import { type LimitRule, type LimitStart, startTime } from "../model/limit.js";
import type { LeaseLimit } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { reindexJob, releaseWaiting } from "./job-queue.js";
import { placeWork } from "./placement.js";
import { Fifo } from "./queues.js";
import { updateActive } from "./signature.js";
import type { JobState, Signature, State, Timer, WorkerState } from "./state.js";

export interface LimitState {
  readonly name: string;
  /** Absent after its removal: then it limits nothing, but its tasks are still counted. */
  rule: LimitRule | undefined;
  /** Tasks at workers of this broker. */
  running: number;
  /** Starts within the interval of the rate, oldest first. */
  readonly starts: Fifo<{ readonly at: number; count: number }>;
  startCount: number;
  readonly signatures: Set<Signature>;
  timer?: Timer | undefined;
}

export function limitFor(state: State, name: string): LimitState {
  const known = state.limits.get(name);
  if (known !== undefined) return known;
  const limit = {
    name,
    rule: undefined,
    running: 0,
    starts: new Fifo<never>(),
    startCount: 0,
    signatures: new Set<Signature>(),
  };
  state.limits.set(name, limit);
  return limit;
}

/** Called before jobs are added. */
export function loadLimits(
  state: State,
  rules: ReadonlyMap<string, LimitRule>,
  starts: readonly LimitStart[],
  now: number,
): void {
  for (const [name, rule] of rules) limitFor(state, name).rule = rule;
  for (const { name, at, count } of [...starts].sort((a, b) => a.at - b.at)) {
    const limit = limitFor(state, name);
    // The clock may have been set back since.
    limit.starts.add({ at: Math.min(at, now), count });
    limit.startCount += count;
  }
  for (const limit of state.limits.values()) {
    forgetStarts(limit, now);
    if (!state.shared) updateFull(state, limit);
  }
}

/** How many more tasks of the signature may be assigned. */
export function spareStarts({ limits }: Signature): number {
  let spare = Number.POSITIVE_INFINITY;
  for (const limit of limits ?? []) spare = Math.min(spare, roomOf(limit));
  return spare;
}

function roomOf({ rule, running, startCount }: LimitState): number {
  const byRate = (rule?.rate?.starts ?? Number.POSITIVE_INFINITY) - startCount;
  return Math.min((rule?.running ?? Number.POSITIVE_INFINITY) - running, byRate);
}

/** Whether the store decides how many tasks of this job may be leased. */
export const isLimitedByStore = (state: State, { named, maxRunning }: Limits): boolean =>
  state.shared && (named !== undefined || maxRunning !== undefined);

/** Counts tasks of the signature that workers got, or with a negative `count` no longer have. */
export function countLimited(state: State, { limits }: Signature, count: number): void {
  for (const limit of limits ?? []) {
    limit.running += count;
    if (!state.shared) updateFull(state, limit);
    else if (count < 0) mayLeaseAgain(limit);
  }
}

/** Tasks of the signature are assigned now. */
export function recordStarts(state: State, { limits }: Signature, count: number, now: number): void {
  if (state.shared) return;
  for (const limit of limits ?? []) {
    const { rate } = limit.rule ?? {};
    if (rate === undefined) continue;
    forgetStarts(limit, now);
    limit.starts.add({ at: startTime(rate, now), count });
    limit.startCount += count;
    updateFull(state, limit);
  }
}

function forgetStarts(limit: LimitState, now: number): void {
  const { intervalMs = 0 } = limit.rule?.rate ?? {};
  for (
    let start = limit.starts.front;
    start !== undefined && start.at + intervalMs <= now;
    start = limit.starts.front
  ) {
    limit.startCount -= start.count;
    limit.starts.shift();
  }
}

/** The limit of the signature that has no room. */
export const fullLimit = ({ limits }: Pick<Signature, "limits">): LimitState | undefined =>
  limits?.find((limit) => roomOf(limit) <= 0);

function updateFull(state: State, limit: LimitState): void {
  for (const signature of limit.signatures) {
    const full = fullLimit(signature);
    if (full === signature.full) continue;
    if (full === undefined && signature.jobs.size > 0) state.needsPlacement = true;
    signature.full = full;
    updateActive(state, signature);
  }
  const { rate } = limit.rule ?? {};
  const oldest = limit.starts.front;
  if (rate === undefined || oldest === undefined || limit.startCount < rate.starts) setTimer(state, limit, undefined);
  else setTimer(state, limit, oldest.at + rate.intervalMs);
}

function setTimer(state: State, limit: LimitState, at: number | undefined): void {
  if (limit.timer?.at === at) return;
  if (limit.timer !== undefined) state.timers.remove(limit.timer);
  limit.timer = at === undefined ? undefined : { at, kind: "limit", limit };
  if (limit.timer !== undefined) state.timers.upsert(limit.timer);
}

/** The rate permits another start. */
export function onLimitTimer(state: State, limit: LimitState, now: number): void {
  limit.timer = undefined;
  if (state.shared) {
    mayLeaseAgain(limit);
    return;
  }
  forgetStarts(limit, now);
  updateFull(state, limit);
}

/** The rule was set, or removed (undefined). It applies to everything that is not assigned yet. */
export function onLimitRule(
  state: State,
  out: Decisions,
  name: string,
  rule: LimitRule | undefined,
  now: number,
): void {
  const limit = limitFor(state, name);
  // Starts count for the interval under which they were made. A longer interval begins with the rest of the former one.
  forgetStarts(limit, now);
  limit.rule = rule;
  if (state.shared) {
    // Waiting tasks were leased under the former rule. They are released, and the store leases them by the new one.
    for (const job of state.jobs.values())
      if (job.ready > 0 && job.signature.limits?.includes(limit) === true) releaseWaiting(state, out, job);
    mayLeaseAgain(limit);
  } else {
    forgetStarts(limit, now);
    updateFull(state, limit);
  }
  if (rule === undefined && limit.signatures.size === 0) state.limits.delete(name);
  placeWork(state, out, now);
}

// In a group

/** The store has granted less than was requested. */
export function onLeaseRefused(state: State, job: JobState, { limit: name, nextMs }: LeaseLimit, now: number): void {
  job.mayLease = true;
  if (name === undefined) {
    job.leaseRefused = true;
    state.refusedJobs.add(job.id);
    return;
  }
  const limit = limitFor(state, name);
  job.signature.leaseRefusedBy = limit;
  if (nextMs !== undefined) setTimer(state, limit, now + nextMs);
}

function mayLeaseAgain(limit: LimitState): void {
  for (const signature of limit.signatures) signature.leaseRefusedBy = undefined;
}

/** A task of a job with `maxRunning` has ended here. */
export function mayLeaseJobAgain(state: State, job: JobState): void {
  if (!job.leaseRefused) return;
  job.leaseRefused = false;
  state.refusedJobs.delete(job.id);
}

/** Tasks of limits may have ended at other brokers: refused leases are requested again. */
export function onLimitsFreed(state: State, out: Decisions, now: number): void {
  for (const limit of state.limits.values()) mayLeaseAgain(limit);
  const jobs: readonly JobId[] = [...state.refusedJobs];
  for (const id of jobs) {
    const job = state.jobs.get(id);
    state.refusedJobs.delete(id);
    if (job === undefined) continue;
    job.leaseRefused = false;
    reindexJob(state, job);
  }
  placeWork(state, out, now);
}

// `maxRunning`: at most this many tasks of a job run at once. A worker may have more of them, prefetched, because each
// assignment tells it how many it may run at once. The sum for all workers is within the limit:
//
//     sum over the workers of min(assigned, atOnce) ≤ maxRunning
//
// Tasks for free slots raise `atOnce`, prefetched ones do not. So a worker counts only for what it runs, and the rest
// of the limit is left to other workers.

/** The tasks of a job with `maxRunning` at one worker. */
export interface RunShare {
  assigned: number;
  /** How many it may run at once, by the last assignment. Unknown after a start of the broker: then the job's limit. */
  atOnce: number;
}

const most = ({ assigned, atOnce }: RunShare): number => Math.min(assigned, atOnce);

/** How many more tasks may run. Can be negative after a start, when each `atOnce` is assumed to be the limit. */
export function spareRuns(job: JobState): number {
  const { maxRunning } = job.job.limits;
  return maxRunning === undefined ? Number.POSITIVE_INFINITY : maxRunning - job.mostRunning;
}

/** How many tasks of a job with `maxRunning` the worker may run at once, including its current ones. */
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

/** The job has a limit from now on. Workers run the tasks that they have. */
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
