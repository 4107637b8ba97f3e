/** A job's own line: what waits, what waits for its time, and whether the job stands in its signature's order. */
import { type Range, sizeOf, intersection, difference } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { leaseForFreeSlots, leaseWhenLow, updateNeedsLease, stuckJobs } from "./leasing.js";
import { raiseToShareLevel } from "./fair-share.js";
import { updateActive } from "./signature.js";
import { type JobState, newTaskRangeId, type State, type WaitingRange, type WorkerState } from "./state.js";

/** Whether anything of this job may be handed out now. */
export const isReady = (job: JobState): boolean => job.ready > 0 && mayRun(job);

export function mayRun(job: JobState): boolean {
  const { maxRunning } = job.job.limits;
  return !job.held && job.blockedBy.size === 0 && (maxRunning === undefined || job.assigned < maxRunning);
}

/** Put the job into its signature's order, or out of it, after anything that `isReady` looks at has changed. */
export function reindexJob(state: State, job: JobState): void {
  const { signature } = job;
  if (isReady(job)) {
    if (!signature.jobs.has(job)) {
      raiseToShareLevel(job);
      // What made it ready may be a worker that takes other work; another may have room for it.
      state.needsPlacement = true;
    }
    signature.jobs.upsert(job);
  } else {
    signature.jobs.remove(job);
  }
  updateActive(state, signature);
  if (state.shared) updateNeedsLease(state, job, mayRun(job));
}

/** Tasks granted or given back to this broker begin to wait. What was cancelled meanwhile leaves at once. */
export function addWaiting(state: State, out: Decisions, job: JobState, taskRange: TaskRange, now: number): void {
  const cancelled = intersection(taskRange, job.cancels);
  if (cancelled.length === 0) {
    enqueue(state, job, { ...waitingOf(taskRange), rangeId: taskRange.id }, now);
    return;
  }
  const pieces: TaskRange[] = [];
  for (const left of difference(taskRange, job.cancels)) pieces.push({ ...taskRange, ...left, id: newTaskRangeId(state) });
  let count = 0;
  for (const range of cancelled) count += sizeOf(range);
  out.writes.push({ op: "replace", job: job.id, rangeId: taskRange.id, replacements: pieces, earlierAttempts: [], cancelled: count });
  for (const piece of pieces) enqueue(state, job, { ...waitingOf(piece), rangeId: piece.id }, now);
}

function waitingOf(taskRange: TaskRange): Omit<WaitingRange, "parcel"> {
  const { first, last, attempt, failures, crashes, notBefore, avoid } = taskRange;
  return { first, last, attempt, failures, crashes, notBefore, ...(avoid === undefined ? {} : { avoid }) };
}

function enqueue(state: State, job: JobState, waiting: WaitingRange, now: number): void {
  if (waiting.notBefore > now) {
    job.inBackoff.add(waiting);
    state.timers.upsert({ at: waiting.notBefore, kind: "retry", job, waiting });
    return;
  }
  job.ready += sizeOf(waiting);
  job.waiting.add(waiting);
  reindexJob(state, job);
}

/** The backoff of these tasks is over. */
export function endBackoff(state: State, job: JobState, waiting: WaitingRange): void {
  if (!job.inBackoff.delete(waiting)) return;
  job.ready += sizeOf(waiting);
  job.waiting.add(waiting);
  reindexJob(state, job);
}

/** Up to `most` tasks for this worker, all of one parcel. `any`: even what has failed there, for want of others. */
export function takeWaiting(
  job: JobState,
  worker: WorkerState,
  max: number,
  includeAvoided: boolean,
): (Range & { readonly waiting: WaitingRange }) | undefined {
  const waiting = job.waiting.frontFor(worker.profile.id) ?? (includeAvoided ? job.waiting.front : undefined);
  if (waiting === undefined || max < 1) return undefined;
  const first = waiting.first;
  const last = Math.min(waiting.last, first + max - 1);
  waiting.first = last + 1;
  if (waiting.first > waiting.last) job.waiting.dropFront(waiting);
  job.ready -= last - first + 1;
  return { first, last, waiting };
}

/** Put other stretches in the place of all that waits. */
export function replaceWaiting(job: JobState, kept: Iterable<WaitingRange>): void {
  job.waiting.clear();
  job.ready = 0;
  for (const waiting of kept) {
    job.waiting.add(waiting);
    job.ready += sizeOf(waiting);
  }
}

/** Ask for more before the line runs dry. */
export function leaseMore(state: State, out: Decisions, job: JobState): void {
  if (state.shared) updateNeedsLease(state, job, mayRun(job));
  if (!job.mayLease || job.leasing || state.halted || job.blockedBy.size > 0) return;
  if (state.shared) {
    // What nobody here can do is left to others: leasing it would only be giving it back again.
    if (job.ready > 0 && job.signature.capable.size > 0) leaseWhenLow(state, out, job);
    else leaseForFreeSlots(state, out);
    return;
  }
  if (job.ready > state.settings.maxLeaseTasks / 2) return;
  job.leasing = true;
  out.writes.push({ op: "lease", job: job.id, max: state.settings.maxLeaseTasks, rangeId: newTaskRangeId(state) });
}

/** Whatever waits is for other brokers: this one hands out nothing for a while. */
export function releaseAllWaiting(state: State, out: Decisions): void {
  for (const job of state.jobs.values()) releaseWaiting(state, out, job);
}

/** Others have workers with nothing to do: what is stuck here is for them. */
export function onRemoteIdle(state: State, out: Decisions): void {
  if (state.halted) return;
  for (const job of stuckJobs(state)) releaseWaiting(state, out, job);
}

/** No worker here can do any of this job: give back what waits, so that other brokers may lease it. */
export function releaseIfNoWorker(state: State, out: Decisions, job: JobState): void {
  if (state.shared && job.signature.capable.size === 0) releaseWaiting(state, out, job);
}

/** Whatever waits of this job can be leased by any broker. */
export function releaseWaiting(state: State, out: Decisions, job: JobState): void {
  const waiting = [...job.waiting, ...job.inBackoff];
  if (waiting.length === 0) return;
  for (const { rangeId } of waiting) out.writes.push({ op: "release", rangeId });
  job.waiting.clear();
  job.inBackoff.clear();
  job.ready = 0;
  job.mayLease = true;
  reindexJob(state, job);
}
