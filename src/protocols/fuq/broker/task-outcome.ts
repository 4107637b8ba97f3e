/** The outcome of a task, from fuq's words to the broker's. */
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import type { Done } from "../../../dispatch/index.js";
import { claimOf } from "../../../dispatch/state.js";
import type { JobId, WorkerId } from "../../../model/ids.js";
import type { Update } from "../messages.js";
import { outcomeFromStatus } from "../outcome.js";
import { type AssignedTask, rangeOf } from "./assigned-task-map.js";
import { indexOfPair } from "./fuq-task.js";

type ReportedStatus = Pick<Update, "success" | "status">;

/**
 * One that was over its time limit and has not succeeded meanwhile timed out, whatever its worker reports. Nothing is reported of one that
 * was cancelled by the text.
 */
export function outcomeOf(held: AssignedTask, reported?: ReportedStatus): Done {
  const { job, first: index, attempt } = rangeOf(held);
  const late = held.timedOut && reported?.success !== true;
  const end = reported === undefined ? {} : outcomeFromStatus(reported.success, reported.status);
  return {
    job,
    index,
    attempt,
    started: held.since,
    ended: now(),
    outputBytes: 0,
    ...end,
    ...(late ? { timedOut: true } : {}),
  };
}

/** When the broker learned that a task was started; now, where it has not. */
export function startTimeOf(core: Core, id: WorkerId, job: JobId, index: number): number {
  const worker = core.state.workers.get(id);
  const claim = worker === undefined ? undefined : claimOf(worker, job, index);
  return claim?.startedAt?.get(index) ?? now();
}

/** An UPDATE of a worker that has not joined, of a task that is kept for it. Resolves when it is recorded, or nobody's. */
export async function recordBeforeJoin(core: Core, id: WorkerId, update: Update): Promise<void> {
  const known = await core.claimedBy(id);
  const index = indexOfPair(core, update) ?? -1;
  const mine = known.find(({ job, first, last }) => job === update.jobId && first <= index && index <= last);
  if (mine === undefined) return;
  const { job, attempt } = mine;
  const times = { started: startTimeOf(core, id, job, index), ended: now(), outputBytes: 0 };
  const done = { job, index, attempt, ...times, ...outcomeFromStatus(update.success, update.status) };
  await new Promise<void>((resolve) => core.workerDone(id, [done], resolve));
}
