/**
 * Task i of a job after task i of another (`each` of a dependency). It waits in `pending` until that task has
 * succeeded, and is cancelled if that task failed or was cancelled. Results of the other job come from this broker's
 * commits, or from the store (broker/dependencies.ts): at the start, and if other brokers recorded them.
 */
import type { JobId } from "../model/ids.js";
import { countOf, difference, intersection, NO_RANGES, type Range, type Ranges, union } from "../model/ranges.js";
import { onCancel } from "./cancel.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, leaseMore, reindexJob } from "./job-queue.js";
import { placeWork } from "./placement.js";
import type { JobState, State } from "./state.js";

/** Called when the job is added. */
export function watchEach(state: State, job: JobState): void {
  for (const { job: other, each } of job.job.after) {
    if (each !== true) continue;
    job.each.set(other, NO_RANGES);
    const watching = state.eachWaiting.get(other);
    if (watching === undefined) state.eachWaiting.set(other, new Set([job]));
    else watching.add(job);
  }
}

export function unwatchEach(state: State, job: JobState): void {
  for (const other of [...job.each.keys()]) unwatch(state, job, other);
  job.pending.clear();
}

function unwatch(state: State, job: JobState, other: JobId): void {
  job.each.delete(other);
  const watching = state.eachWaiting.get(other);
  watching?.delete(job);
  if (watching?.size === 0) state.eachWaiting.delete(other);
}

/** The tasks that need not wait for a task of another job. */
export function releasedOf(each: JobState["each"], range: Range): Ranges {
  let found: Ranges = [range];
  for (const succeeded of each.values()) found = found.flatMap((one) => intersection(one, succeeded));
  return found;
}

/** Tasks of the other job have ended. `final`: so has the job, and tasks that did not succeed count as failed. */
export function onEachEnded(
  state: State,
  out: Decisions,
  other: JobId,
  { succeeded, failed, final }: { readonly succeeded: Ranges; readonly failed: Ranges; readonly final: boolean },
  now: number,
): void {
  for (const job of [...(state.eachWaiting.get(other) ?? [])]) {
    const before = job.each.get(other) ?? NO_RANGES;
    const all = union(before, succeeded);
    const lost = final ? difference({ first: 0, last: job.job.count - 1 }, all) : failed;
    if (final) unwatch(state, job, other);
    else job.each.set(other, all);
    const fresh = lost.flatMap((range) => difference(range, job.cancels));
    if (fresh.length > 0)
      onCancel(state, out, job.id, fresh, `the tasks of job ${other} that they wait for have not succeeded`);
    for (const pending of [...job.pending]) {
      if (releasedOf(job.each, pending).length === 0) continue;
      job.pending.delete(pending);
      addWaiting(state, out, job, pending, now);
    }
    if (final || countOf(all) > countOf(before)) job.eachStalled = false;
    reindexJob(state, job);
    leaseMore(state, out, job);
  }
  placeWork(state, out, now);
}
