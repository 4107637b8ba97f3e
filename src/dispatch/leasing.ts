/**
 * How much a broker takes from a store that it shares. What it has leased waits for its workers alone, so it leases what they will
 * soon use and no more, or those of another broker would stand idle beside it:
 *
 * - of a job whose tasks are short, half a second's work of the workers here, before what waits runs dry;
 * - of any other job, and of one of which none has ended yet, what fits into the room there is now. Where there is no room the job is
 *   hungry, and is looked at again when room comes;
 * - a few, although there is no room, of a job that must compete here: others of no higher priority wait, or a wide task needs a worker
 *   kept for it. A job of which nothing waits is in nobody's order, and would never have its turn.
 *
 * One lease at a time is under way for hungry jobs of a signature: what it brings may fill the room.
 */
import type { Job } from "../model/job.js";
import type { Decisions } from "./decisions.js";
import { fitCount, maxFitCount } from "./signature.js";
import { type JobState, newTaskRangeId, type Signature, type State } from "./state.js";

const LEASED_WORK_MS = 500;
const MIN_TASK_MS = 0.02;

/** Put the job among the hungry ones of its signature, or out of them, after anything that this looks at has changed. */
export function updateNeedsLease(state: State, job: JobState, mayRun: boolean): void {
  const { signature } = job;
  if (state.shared && job.mayLease && !job.leasing && job.ready === 0 && mayRun) {
    signature.needsLease.upsert(job);
    state.needsLease.add(signature);
  } else {
    signature.needsLease.remove(job);
    if (signature.needsLease.size === 0) state.needsLease.delete(signature);
  }
}

/** Room may have come, or the order may have changed: lease for the hungry job that goes next. */
export function leaseForFreeSlots(state: State, out: Decisions): void {
  if (state.halted) return;
  for (const signature of [...state.needsLease]) {
    const job = signature.needsLease.peek();
    if (job === undefined || signature.lastLeasedJob?.leasing === true) continue;
    const most = leaseSize(state, job);
    if (most > 0) lease(state, out, job, most);
  }
}

/** Of a job that has something waiting: ask for more before it runs dry. */
export function leaseWhenLow(state: State, out: Decisions, job: JobState): void {
  const byRate = leaseSizeByRate(state, job);
  if (byRate !== undefined && job.ready <= byRate / 2) lease(state, out, job, byRate);
}

/** How many tasks of a new job are leased with its submission. */
export function firstLease(state: State, signature: Signature, job: NewJobFields): number {
  const { after, limits, priority, held } = job;
  if (held || after.length > 0 || signature.capable.size === 0) return 0;
  const free = leaseSizeByFreeSlots(state, signature, priority);
  return Math.min(free, limits.maxRunning ?? free);
}

type NewJobFields = Pick<Job, "after" | "limits" | "priority" | "held">;

/** Jobs of which tasks wait here although no worker here has room, and would for a while: workers of other brokers may have. */
export function stuckJobs(state: State): JobState[] {
  return [...state.jobs.values()].filter((job) => {
    const { signature, ready } = job;
    return ready > 0 && !signature.wide && signature.available.size === 0 && leaseSizeByRate(state, job) === undefined;
  });
}

function leaseSize(state: State, job: JobState): number {
  const { signature } = job;
  if (signature.capable.size === 0) return 0;
  const most = leaseSizeByRate(state, job) ?? leaseSizeByFreeSlots(state, signature, job.job.priority);
  const { maxRunning } = job.job.limits;
  return maxRunning === undefined ? most : Math.min(most, maxRunning - job.assigned);
}

/** What the workers here do of a job with short tasks in a moment; undefined for any other. */
function leaseSizeByRate(state: State, { meanMs, signature }: JobState): number | undefined {
  const { maxPrefetchTaskMs, maxLeaseTasks } = state.settings;
  if (meanMs === undefined || meanMs > maxPrefetchTaskMs) return undefined;
  const byRate = (capacityOf(signature) * LEASED_WORK_MS) / Math.max(meanMs, MIN_TASK_MS);
  return Math.min(maxLeaseTasks, Math.max(1, Math.ceil(byRate)));
}

function leaseSizeByFreeSlots(state: State, signature: Signature, priority: number): number {
  const { maxLeaseTasks } = state.settings;
  let free = 0;
  for (const worker of signature.available) {
    free += fitCount(worker, signature);
    if (free >= maxLeaseTasks) return maxLeaseTasks;
  }
  if (free > 0) return free;
  if (signature.wide) return 1;
  return isContested(state, signature, priority) ? Math.min(maxLeaseTasks, capacityOf(signature)) : 0;
}

/** Whether jobs wait here that a job of this priority would go before, or share with. */
function isContested(state: State, signature: Signature, priority: number): boolean {
  for (const other of state.active) {
    const next = other.jobs.peek();
    if (next !== undefined && next.job.priority <= priority && other.requirement.pool === signature.requirement.pool)
      return true;
  }
  return false;
}

/** How many tasks the workers here could have at once. */
function capacityOf(signature: Signature): number {
  if (signature.capacity === undefined) {
    let capacity = 0;
    for (const worker of signature.capable) capacity += maxFitCount(worker, signature);
    signature.capacity = capacity;
  }
  return signature.capacity;
}

function lease(state: State, out: Decisions, job: JobState, most: number): void {
  const { signature } = job;
  job.leasing = true;
  updateNeedsLease(state, job, false);
  signature.lastLeasedJob = job;
  out.writes.push({ op: "lease", job: job.id, max: most, rangeId: newTaskRangeId(state) });
}
