/**
 * How many tasks a broker leases from a shared store. Only this broker's workers run leased tasks, so it leases what
 * they will soon use and no more. Otherwise workers of other brokers would be idle. It leases:
 *
 * - for a job with short tasks, half a second of work for the workers here, before its queue is empty;
 * - for other jobs, and jobs without an ended task: as many tasks as there are free slots now. Without free slots the
 *   job is marked as `needsLease` and considered again when slots become free;
 * - for such jobs, half a second of work more if tasks with the same requirements were short lately. A job of one task
 *   never has a mean of its own. When workers of other brokers are idle, these tasks are released;
 * - a few tasks, even without free slots, for a job that has to compete here: other jobs of no higher priority wait, or
 *   a wide task needs a reserved worker. A job without waiting tasks is in no queue and would never get its turn;
 * - for jobs with limits no more than fit into the free slots, and one task of a signature that has to compete here:
 *   leased tasks count against the limit at all brokers. So tasks with a limit that wait for tasks of another job are
 *   released at once, and their job leases again when some of those have ended.
 *
 * Jobs that need a lease get one in their order, as long as pending leases leave room. So many small jobs are leased in
 * one batch, and large ones one at a time.
 */
import type { Job } from "../model/job.js";
import { countOf } from "../model/ranges.js";
import type { Decisions } from "./decisions.js";
import { releasedOf } from "./each.js";
import { isLimitedByStore, spareRuns } from "./limits.js";
import { availableOf, fitCount, maxFitCount } from "./signature.js";
import { type JobState, newTaskRangeId, type Signature, type State } from "./state.js";

const LEASED_WORK_MS = 500;
const MIN_TASK_MS = 0.02;

/** Adds the job to those that need a lease, or removes it. Called after every change that this depends on. */
export function updateNeedsLease(state: State, job: JobState, mayRun: boolean): void {
  const { signature } = job;
  if (state.shared && job.mayLease && !job.leasing && !isRefused(job) && job.ready === 0 && mayRun) {
    signature.needsLease.upsert(job);
    state.needsLease.add(signature);
  } else {
    signature.needsLease.remove(job);
    if (signature.needsLease.size === 0) state.needsLease.delete(signature);
  }
}

const isRefused = ({ leaseRefused, eachStalled }: JobState): boolean => leaseRefused || eachStalled;

/** Slots may have become free, or the order may have changed: leases for the next job that needs it. */
export function leaseForFreeSlots(state: State, out: Decisions): void {
  if (state.halted !== undefined) return;
  for (const signature of [...state.needsLease]) {
    if (signature.leaseRefusedBy !== undefined) continue;
    for (let job = signature.needsLease.peek(); job !== undefined; job = signature.needsLease.peek()) {
      const count = leaseSize(state, job);
      if (count <= 0) break;
      lease(state, out, job, count);
    }
  }
}

/** The lease of a job was answered, or the job is gone. */
export function leaseEnded(job: JobState): void {
  job.leasing = false;
  job.signature.leasingTasks -= job.leasingTasks;
  job.leasingTasks = 0;
}

/** For a job with waiting tasks: leases more before the last one is assigned. */
export function leaseWhenLow(state: State, out: Decisions, job: JobState): void {
  const byRate = leaseSizeByOwnRate(state, job);
  if (byRate !== undefined && job.ready <= byRate / 2) lease(state, out, job, byRate);
}

/** How many tasks of a new job are leased with its submission. */
export function firstLease(state: State, signature: Signature, job: NewJobFields): number {
  const { after, limits, priority, held, notBefore } = job;
  const paused = state.pausedPools.has(signature.requirement.pool);
  if (held || paused || after.length > 0 || notBefore !== undefined || signature.capable.size === 0) return 0;
  return isLimitedByStore(state, limits) ? 0 : leaseSizeByFreeSlots(state, signature, priority, false);
}

type NewJobFields = Pick<Job, "after" | "limits" | "priority" | "held" | "notBefore">;

/** Workers of other brokers are idle: leases nothing in advance for a while. Returns the jobs without a free slot. */
export function stuckJobs(state: State): JobState[] {
  state.leaseAheadAt = state.now + LEASED_WORK_MS;
  return [...state.jobs.values()].filter((job) => {
    const { signature, ready } = job;
    return (
      ready > 0 && !signature.wide && availableOf(signature).size === 0 && leaseSizeByOwnRate(state, job) === undefined
    );
  });
}

function leaseSize(state: State, job: JobState): number {
  const { signature } = job;
  if (signature.capable.size === 0) return 0;
  const limited = isLimitedByStore(state, job.job.limits);
  if (job.each.size > 0) return Math.min(leaseSizeForEach(state, job, limited), spareRuns(job));
  const size = leaseSizeByOwnRate(state, job) ?? leaseSizeByFreeSlots(state, signature, job.job.priority, limited);
  const count = size - signature.leasingTasks;
  return Math.min(count, spareRuns(job));
}

/**
 * Most of its tasks wait for others, so they would be leased a few at a time. With limits, tasks that must wait may be
 * leased before tasks that need not, and are released again.
 */
function leaseSizeForEach(state: State, { each, job, signature }: JobState, limited: boolean): number {
  const { maxLeaseTasks } = state.settings;
  if (!limited) return maxLeaseTasks;
  const size = leaseSizeByFreeSlots(state, signature, job.priority, true);
  const released = countOf(releasedOf(each, { first: 0, last: job.count - 1 }));
  return size === 0 ? 0 : Math.min(maxLeaseTasks, size + job.count - released);
}

const leaseSizeByOwnRate = (state: State, { job, signature, meanMs }: JobState): number | undefined =>
  isLimitedByStore(state, job.limits) ? undefined : leaseSizeByRate(state, signature, meanMs);

/** Half a second of work for the workers here, if tasks are short. Undefined if they are not, or if unknown. */
function leaseSizeByRate(state: State, signature: Signature, meanMs: number | undefined): number | undefined {
  const { maxPrefetchTaskMs, maxLeaseTasks } = state.settings;
  if (meanMs === undefined || meanMs > maxPrefetchTaskMs) return undefined;
  const byRate = (capacityOf(signature) * LEASED_WORK_MS) / Math.max(meanMs, MIN_TASK_MS);
  return Math.min(maxLeaseTasks, Math.max(1, Math.ceil(byRate)));
}

export function leaseSizeByFreeSlots(state: State, signature: Signature, priority: number, limited: boolean): number {
  const { maxLeaseTasks } = state.settings;
  const ahead = signature.wide || limited ? undefined : leaseSizeByRate(state, signature, signature.meanMs);
  // Jobs that wait here have at least one task each. Tasks that were just released are left to other brokers for a
  // moment.
  let free = ahead === undefined || state.now < state.leaseAheadAt ? 0 : Math.max(0, ahead - signature.jobs.size);
  for (const worker of availableOf(signature)) {
    free += fitCount(worker, signature);
    if (free >= maxLeaseTasks) return maxLeaseTasks;
  }
  if (free > 0) return free;
  // Similar jobs compete in its place. It gets a lease when some of them have been assigned.
  if (ahead !== undefined && (signature.jobs.peek()?.job.priority ?? Number.NEGATIVE_INFINITY) >= priority) return 0;
  if (limited && signature.jobs.size > 0) return 0;
  if (signature.wide) return 1;
  if (limited) return isContested(state, signature, priority) ? 1 : 0;
  return isContested(state, signature, priority) ? Math.min(maxLeaseTasks, capacityOf(signature)) : 0;
}

/** Whether jobs wait here that would precede a job of this priority or share slots with it. */
function isContested(state: State, signature: Signature, priority: number): boolean {
  for (const other of state.active) {
    const next = other.jobs.peek();
    if (next !== undefined && next.job.priority <= priority && other.requirement.pool === signature.requirement.pool)
      return true;
  }
  return false;
}

/** How many tasks the workers here can run at once. */
function capacityOf(signature: Signature): number {
  if (signature.capacity === undefined) {
    let capacity = 0;
    for (const worker of signature.capable) capacity += maxFitCount(worker, signature);
    signature.capacity = capacity;
  }
  return signature.capacity;
}

function lease(state: State, out: Decisions, job: JobState, count: number): void {
  const { signature } = job;
  job.leasing = true;
  job.leasingTasks = Math.min(count, job.job.count);
  signature.leasingTasks += job.leasingTasks;
  updateNeedsLease(state, job, false);
  const { named, maxRunning } = job.job.limits;
  out.writes.push({
    op: "lease",
    job: job.id,
    max: count,
    rangeId: newTaskRangeId(state),
    ...(named === undefined ? {} : { limits: named }),
    ...(maxRunning === undefined ? {} : { maxRunning }),
  });
  out.urgent = true;
}
