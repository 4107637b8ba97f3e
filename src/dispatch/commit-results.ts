/** What the store said to a batch of writes. */
import type { TaskRangeId } from "../model/ids.js";
import type { WriteResult, Write } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { onGranted, onMayLease, onTaskRangesLost, onProgress } from "./jobs.js";
import { placeWork } from "./placement.js";
import type { State } from "./state.js";

/**
 * Learn from a commit. Returns the parcels that turned out not to be this broker's: what was to be sent about
 * them must not go. Submissions and adoptions are the affair of whoever asked for them.
 */
export function onCommitted(
  state: State,
  out: Decisions,
  writes: readonly Write[],
  answers: readonly WriteResult[],
  now: number,
): ReadonlySet<TaskRangeId> {
  const lost = new Set<TaskRangeId>();
  answers.forEach((answer, i) => {
    const write = writes[i];
    if (write === undefined) return;
    if (answer.op === "lease" && write.op === "lease") {
      onGranted(state, out, write.job, answer.taskRanges, answer.mayLease, now);
    } else if (answer.op === "claim" && write.op === "claim" && answer.lost) {
      lost.add(write.rangeId).add(write.from);
    } else if (
      (answer.op === "settle" || answer.op === "replace") &&
      (write.op === "settle" || write.op === "replace")
    ) {
      if (answer.lost) {
        lost.add(write.rangeId);
        if (write.op === "replace") for (const piece of write.replacements) lost.add(piece.id);
      }
      if (answer.progress !== undefined) onProgress(state, out, write.job, answer.progress, now);
    } else if (answer.op === "release" && answer.job !== undefined && answer.progress !== undefined) {
      onProgress(state, out, answer.job, answer.progress, now);
    } else if (answer.op === "cancel" && write.op === "cancel" && answer.progress !== undefined) {
      onProgress(state, out, write.job, answer.progress, now);
    }
  });
  // A lease answered before what was released beside it says that there is no more; there is.
  if (writes.some((write) => write.op === "release")) for (const id of [...state.jobs.keys()]) onMayLease(state, out, id);
  if (lost.size > 0) onTaskRangesLost(state, out, lost, now);
  // An answer can change which job is next, and with that who a worker is kept for.
  placeWork(state, out, now);
  return lost;
}
