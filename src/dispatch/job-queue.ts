/** The queue of a job: waiting tasks, tasks in backoff, its place in its signature's order, and its share there. */
import type { TaskRangeId } from "../model/ids.js";
import { haltRuleOf } from "../model/job.js";
import type { TaskResult } from "../model/outcome.js";
import { countOf, difference, firstOf, intersection, type Range, type Ranges, sizeOf, union } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { releasedOf } from "./each.js";
import { leaseForFreeSlots, leaseSizeByFreeSlots, leaseWhenLow, stuckJobs, updateNeedsLease } from "./leasing.js";
import { isLimitedByStore, spareRuns } from "./limits.js";
import { updateActive, wake } from "./signature.js";
import {
  type JobState,
  newTaskRangeId,
  type Signature,
  type State,
  type WaitingRange,
  type WorkerState,
} from "./state.js";

/** With more workers than this, leases are larger. */
const WORKERS_PER_LEASE = 128;

/** Whether tasks of this job can be assigned now. */
export const isReady = (job: JobState): boolean => job.ready > 0 && mayRun(job);

export const mayRun = (job: JobState): boolean => isOpen(job) && spareRuns(job) > 0;

/** Not held, paused, blocked or delayed. */
export const isOpen = (job: JobState): boolean => !job.held && !job.paused && job.blockedBy.size === 0 && !job.delayed;

/** Adds the job to its signature's order or removes it. Called after every change that `isReady` depends on. */
export function reindexJob(state: State, job: JobState): void {
  const { signature } = job;
  if (isReady(job)) {
    if (!signature.jobs.has(job)) {
      raiseToShareLevel(job);
      // The worker whose event made it ready may take other work, and another worker may have free slots for it.
      state.needsPlacement = true;
    }
    signature.jobs.upsert(job);
  } else {
    signature.jobs.remove(job);
  }
  updateActive(state, signature);
  if (state.shared) updateNeedsLease(state, job, mayRun(job));
}

/** Queues tasks that were granted or returned to this broker. Tasks that were cancelled meanwhile are removed. */
export function addWaiting(state: State, out: Decisions, job: JobState, taskRange: TaskRange, now: number): void {
  if (job.halted) cancelReturned(out, job, taskRange);
  const cancelled = intersection(taskRange, job.cancels);
  if (cancelled.length === 0 && job.each.size === 0) {
    enqueue(state, job, waitingOf(taskRange), now);
    return;
  }
  const left = difference(taskRange, job.cancels);
  const goes = job.each.size === 0 ? left : runnable(state, job, left);
  const stays = left.flatMap((range) => difference(range, goes));
  if (cancelled.length === 0 && goes.length === 0) {
    job.pending.add(taskRange);
    return;
  }
  if (cancelled.length === 0 && stays.length === 0 && goes.length === 1) {
    enqueue(state, job, waitingOf(taskRange), now);
    return;
  }
  const newPieces = (ranges: Ranges): TaskRange[] =>
    ranges.map((range) => ({ ...taskRange, ...range, id: newTaskRangeId(state) }));
  const pieces = newPieces(goes);
  const pending = newPieces(stays);
  replaceRange(state, out, job, taskRange.id, [...pieces, ...pending], { cancelled: countOf(cancelled) });
  for (const piece of pending) job.pending.add(piece);
  for (const piece of pieces) enqueue(state, job, waitingOf(piece), now);
}

/** The tasks that need not wait for other jobs. If limits count them, only as many as fit into free slots. */
function runnable(state: State, job: JobState, ranges: Ranges): Ranges {
  const released = ranges.flatMap((range) => releasedOf(job.each, range));
  if (!isLimitedByStore(state, job.job.limits)) return released;
  return firstOf(released, leaseSizeByFreeSlots(state, job.signature, job.job.priority, true) - job.ready);
}

/** Writes the rest of a task range. */
export function replaceRange(
  state: State,
  out: Decisions,
  job: JobState,
  rangeId: TaskRangeId,
  replacements: readonly TaskRange[],
  {
    earlierAttempts = [],
    cancelled = 0,
  }: { readonly earlierAttempts?: readonly TaskResult[]; readonly cancelled?: number } = {},
): void {
  const limited = isLimitedByStore(state, job.job.limits);
  const write = { op: "replace", job: job.id, rangeId, replacements, earlierAttempts, cancelled } as const;
  out.writes.push(limited ? { ...write, limited } : write);
}

/** It was assigned when the rest of the job was cancelled. */
function cancelReturned(out: Decisions, job: JobState, { first, last }: TaskRange): void {
  const ranges = [{ first, last }];
  job.cancels = union(job.cancels, ranges);
  out.writes.push({ op: "cancel", job: job.id, ranges, reason: haltReason(job) });
}

const HALTING = { fail: "failed", success: "succeeded", done: "ended" } as const;

export function haltReason({ job: { limits } }: JobState): string {
  const { on = "fail", count = 1 } = haltRuleOf(limits) ?? {};
  return `${count} ${count === 1 ? "task" : "tasks"} ${HALTING[on]}, which halts the job`;
}

function waitingOf(taskRange: TaskRange): WaitingRange {
  const { id: rangeId, first, last, attempt, failures, crashes, notBefore, waitMs, avoid } = taskRange;
  const waiting = { rangeId, first, last, attempt, failures, crashes, notBefore };
  if (waitMs === undefined && avoid === undefined) return waiting;
  return { ...waiting, ...(waitMs === undefined ? {} : { waitMs }), ...(avoid === undefined ? {} : { avoid }) };
}

function enqueue(state: State, job: JobState, taskRange: WaitingRange, now: number): void {
  // The time was stored by a clock that may have been set back since, or by another broker's clock.
  const longest = now + (taskRange.waitMs ?? 0);
  const waiting = taskRange.notBefore > longest ? { ...taskRange, notBefore: longest } : taskRange;
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

/** Up to `max` tasks for this worker, of one task range. `includeAvoided`: also tasks that failed there. */
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

export function replaceWaiting(job: JobState, ranges: Iterable<WaitingRange>): void {
  job.waiting.clear();
  job.ready = 0;
  for (const waiting of ranges) {
    job.waiting.add(waiting);
    job.ready += sizeOf(waiting);
  }
}

/** Leases more tasks before the queue is empty. */
export function leaseMore(state: State, out: Decisions, job: JobState): void {
  if (state.shared) updateNeedsLease(state, job, mayRun(job));
  if (!job.mayLease || job.leasing || state.halted !== undefined || job.blockedBy.size > 0 || job.delayed) return;
  if (state.shared) {
    // Tasks that no worker here can run are left to other brokers. They would only be released again.
    if (job.ready > 0 && job.signature.capable.size > 0) leaseWhenLow(state, out, job);
    else leaseForFreeSlots(state, out);
    return;
  }
  // Enough for all workers to prefetch.
  const most = state.settings.maxLeaseTasks * Math.max(1, Math.ceil(job.signature.capable.size / WORKERS_PER_LEASE));
  if (job.ready > most / 2) return;
  job.leasing = true;
  out.writes.push({ op: "lease", job: job.id, max: most, rangeId: newTaskRangeId(state) });
}

/** Releases all waiting tasks, because this broker assigns nothing for a while. */
export function releaseAllWaiting(state: State, out: Decisions): void {
  for (const job of state.jobs.values()) releaseWaiting(state, out, job);
}

/** Other brokers have idle workers: releases tasks that wait here without a free slot. */
export function onRemoteIdle(state: State, out: Decisions): void {
  if (state.halted !== undefined) return;
  for (const job of stuckJobs(state)) releaseWaiting(state, out, job);
}

/** Releases the waiting tasks of a job that no worker here can run, so that other brokers may lease them. */
export function releaseIfNoWorker(state: State, out: Decisions, job: JobState): void {
  if (state.shared && job.signature.capable.size === 0) releaseWaiting(state, out, job);
}

/** Releases all waiting tasks of this job, for any broker to lease. */
export function releaseWaiting(state: State, out: Decisions, job: JobState): void {
  const waiting = [...job.waiting, ...job.inBackoff];
  if (waiting.length + job.pending.size === 0) return;
  for (const { rangeId } of waiting) out.writes.push({ op: "release", rangeId });
  if (isLimitedByStore(state, job.job.limits))
    for (const { notBefore: at } of job.inBackoff) state.timers.upsert({ at, kind: "lease", job: job.id });
  job.waiting.clear();
  job.inBackoff.clear();
  job.ready = 0;
  releasePending(out, job);
  reindexJob(state, job);
}

function releasePending(out: Decisions, job: JobState): void {
  for (const { id: rangeId } of job.pending) out.writes.push({ op: "release", rangeId });
  job.pending.clear();
  job.mayLease = true;
}

/** Releases tasks that count against limits and cannot run now. */
export function releaseLimited(state: State, out: Decisions, job: JobState): void {
  if (!isLimitedByStore(state, job.job.limits)) return;
  if (!isOpen(job)) releaseWaiting(state, out, job);
  else if (job.pending.size > 0) releasePending(out, job);
}

// Jobs of equal priority share slots. Each job has the sum of the slots that it was given, and the smallest sum is
// served first: the order of deficit round robin without its rounds. A job that starts to wait has no claim to slots of
// the past. So it starts at the level of the job served last by a worker that could have served it. Levels are kept per
// signature, because the sums of jobs that never share a worker cannot be compared.

/** A job that starts to wait gets the current share level, so that it does not overtake all others. */
function raiseToShareLevel(job: JobState): void {
  wake(job.signature);
  job.served = Math.max(job.served, job.signature.shareLevels.get(job.job.priority)?.level ?? 0);
}

/** `count` tasks of the job were assigned to this worker. */
export function charge({ uses: at }: State, job: JobState, worker: WorkerState, count: number): void {
  const { priority, requirement } = job.job;
  job.served += count * requirement.needs.slots;
  const share = { level: job.served, at };
  worker.shareLevels.set(priority, share);
  for (const signature of worker.indexedIn) signature.shareLevels.set(priority, share);
}

/** What the worker served while the signature was dormant. */
export function mergeShareLevels(signature: Signature, worker: WorkerState): void {
  for (const [priority, share] of worker.shareLevels)
    if (share.at >= (signature.shareLevels.get(priority)?.at ?? 0)) signature.shareLevels.set(priority, share);
}

/** Tasks returned that never ran. The caller reindexes the job. */
export function refund(job: JobState, count: number): void {
  job.served = Math.max(0, job.served - count * job.job.requirement.needs.slots);
}

/**
 * A signature has its first worker. Jobs that wait for it got nothing while that worker served others, and would have
 * the worker to themselves until they caught up.
 */
export function copyShareLevels(signature: Signature, worker: WorkerState): void {
  for (const [priority, share] of worker.shareLevels) {
    if (share.level > (signature.shareLevels.get(priority)?.level ?? 0)) signature.shareLevels.set(priority, share);
  }
  if (worker.shareLevels.size === 0) return;
  for (const job of [...signature.jobs]) {
    raiseToShareLevel(job);
    signature.jobs.upsert(job);
  }
}
