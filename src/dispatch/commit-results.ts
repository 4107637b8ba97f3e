/** What the store has committed: the results of a batch of writes, and tasks that run again. */
import type { TaskRangeId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { difference, normalize } from "../model/ranges.js";
import type { TaskRange, Write, WriteResult } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, leaseMore, reindexJob, releaseIfNoWorker, releaseWaiting } from "./job-queue.js";
import { applyProgress, type Finished, onGranted, onJobAdded, onMayLease, onTaskRangesLost } from "./jobs.js";
import { placeWork } from "./placement.js";
import { newTaskRangeId, type State } from "./state.js";

/**
 * Applies the results of a commit. Returns the task ranges that this broker has lost: nothing may be sent about them.
 * Callers handle the results of submissions and adoptions.
 */
export function onCommitted(
  state: State,
  out: Decisions,
  writes: readonly Write[],
  results: readonly WriteResult[],
  now: number,
): ReadonlySet<TaskRangeId> {
  state.now = now;
  const lost = new Set<TaskRangeId>();
  results.forEach((result, i) => {
    const write = writes[i];
    if (write === undefined) return;
    if (result.op === "submit" && result.replaced?.progress !== undefined) {
      applyProgress(state, out, result.replaced.job, result.replaced.progress);
    } else if (result.op === "lease" && write.op === "lease") {
      onGranted(state, out, write.job, result.taskRanges, result.mayLease, now, result.limited);
    } else if (result.op === "claim" && write.op === "claim" && result.lost) {
      lost.add(write.rangeId).add(write.from);
    } else if (
      (result.op === "settle" || result.op === "replace") &&
      (write.op === "settle" || write.op === "replace")
    ) {
      if (result.lost) {
        lost.add(write.rangeId);
        if (write.op === "replace") for (const piece of write.replacements) lost.add(piece.id);
      }
      if (result.progress !== undefined) applyProgress(state, out, write.job, result.progress);
    } else if (result.op === "release" && result.job !== undefined && result.progress !== undefined) {
      applyProgress(state, out, result.job, result.progress);
    } else if (
      (result.op === "cancel" || result.op === "edit") &&
      (write.op === "cancel" || write.op === "edit") &&
      result.progress !== undefined
    ) {
      applyProgress(state, out, write.job, result.progress);
    }
  });
  // A lease before a release in the same batch may report that there is nothing more to lease. Now there is.
  if (writes.some((write) => write.op === "release"))
    for (const id of [...state.jobs.keys()]) onMayLease(state, out, id);
  if (lost.size > 0) onTaskRangesLost(state, out, lost, now);
  // A result can change which job is next, and so for which job a worker is reserved.
  placeWork(state, out, now);
  return lost;
}

// Rerun: ended tasks return to the queue. An ended job is reopened.

/** Reserves task range ids for the store to use. Returns the first of them. */
export function reserveTaskRangeIds(state: State, idCount: number): TaskRangeId {
  const first = newTaskRangeId(state);
  state.nextTaskRangeId += idCount - 1;
  return first;
}

/** The store lets tasks run again. `finished`: the jobs of its `after` that have ended as required. */
export function onRerun(
  state: State,
  out: Decisions,
  job: Job,
  taskRanges: readonly TaskRange[],
  finished: Finished,
  now: number,
): void {
  state.now = now;
  if (!state.jobs.has(job.id)) onJobAdded(state, out, job, undefined, finished, now);
  const open = state.jobs.get(job.id);
  if (open === undefined) return;
  // Not the store's cancels at that time: one may have been added since.
  const again = normalize(taskRanges);
  open.cancels = open.cancels.flatMap((range) => [...difference(range, again)]);
  open.failed = job.counters.failed;
  open.succeeded = job.counters.succeeded;
  open.halted = false;
  for (const taskRange of taskRanges) addWaiting(state, out, open, taskRange, now);
  reindexJob(state, open);
  // Other brokers have workers too: this broker leases only what its own workers can use.
  if (state.shared) releaseWaiting(state, out, open);
  leaseMore(state, out, open);
  placeWork(state, out, now);
  releaseIfNoWorker(state, out, open);
}
