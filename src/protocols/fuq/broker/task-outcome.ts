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
import { logPath } from "./job-description.js";

type FuqOutcome = Omit<Done, "outputBytes">;
type ReportedStatus = Pick<Update, "success" | "status">;

/**
 * One that was over its time limit and has not succeeded meanwhile timed out, whatever its worker reports. Nothing is reported of one that
 * was cancelled by the text.
 */
export function outcomeOf(held: AssignedTask, reported?: ReportedStatus): FuqOutcome {
  const { job, first: index, attempt } = rangeOf(held);
  const late = held.timedOut && reported?.success !== true;
  const end = reported === undefined ? {} : outcomeFromStatus(reported.success, reported.status);
  return { job, index, attempt, started: held.since, ended: now(), ...end, ...(late ? { timedOut: true } : {}) };
}

/** A worker of fuq sends no output: that of the task says where its log is. */
export function recordOutcome(core: Core, id: WorkerId, done: FuqOutcome, recorded: () => void): void {
  const { job, index, attempt } = done;
  const open = core.state.jobs.get(job)?.job;
  const worker = core.state.workers.get(id)?.profile.name ?? id;
  const bytes = Buffer.from(
    open === undefined ? "" : `laboro: the log is ${logPath(open, index)} on worker ${worker}\n`,
  );
  core.workerOutput(id, [{ job, index, attempt, stream: "stderr", offset: 0, bytes }], () => {});
  core.workerDone(id, [{ ...done, outputBytes: bytes.length }], recorded);
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
  const times = { started: startTimeOf(core, id, job, index), ended: now() };
  const done = { job, index, attempt, ...times, ...outcomeFromStatus(update.success, update.status) };
  await new Promise<void>((resolve) => recordOutcome(core, id, done, resolve));
}
