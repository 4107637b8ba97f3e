/** The results of a committed batch of writes. */
import type { TaskRangeId } from "../model/ids.js";
import type { Write, WriteResult } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { onGranted, onMayLease, onProgress, onTaskRangesLost } from "./jobs.js";
import { placeWork } from "./placement.js";
import type { State } from "./state.js";

/**
 * Applies the results of a commit. Returns the task ranges that turned out not to be this broker's: nothing may be sent about
 * them. The results of submissions and adoptions are handled by their callers.
 */
export function onCommitted(
  state: State,
  out: Decisions,
  writes: readonly Write[],
  results: readonly WriteResult[],
  now: number,
): ReadonlySet<TaskRangeId> {
  const lost = new Set<TaskRangeId>();
  results.forEach((result, i) => {
    const write = writes[i];
    if (write === undefined) return;
    if (result.op === "submit" && result.replaced?.progress !== undefined) {
      onProgress(state, out, result.replaced.job, result.replaced.progress, now);
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
      if (result.progress !== undefined) onProgress(state, out, write.job, result.progress, now);
    } else if (result.op === "release" && result.job !== undefined && result.progress !== undefined) {
      onProgress(state, out, result.job, result.progress, now);
    } else if (
      (result.op === "cancel" || result.op === "edit") &&
      (write.op === "cancel" || write.op === "edit") &&
      result.progress !== undefined
    ) {
      onProgress(state, out, write.job, result.progress, now);
    }
  });
  // A lease before a release in the same batch may say that there is nothing more to lease; now there is.
  if (writes.some((write) => write.op === "release"))
    for (const id of [...state.jobs.keys()]) onMayLease(state, out, id);
  if (lost.size > 0) onTaskRangesLost(state, out, lost, now);
  // A result can change which job is next, and so for which job a worker is reserved.
  placeWork(state, out, now);
  return lost;
}
