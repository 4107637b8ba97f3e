/** The outcome of a task, from fuq's words to the broker's. */
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import type { AssignedTask } from "../../../broker/sessions/assigned-tasks.js";
import type { Done } from "../../../dispatch/index.js";
import { JobId, type WorkerId } from "../../../model/ids.js";
import type { Update } from "../messages.js";
import { outcomeFromStatus } from "../outcome.js";
import { indexOfPair } from "./fuq-task.js";
import { logPath } from "./job-description.js";

type FuqOutcome = Omit<Done, "outputBytes">;
type ReportedStatus = Pick<Update, "success" | "status">;

/**
 * One that was over its time limit and has not succeeded meanwhile timed out, whatever its worker reports. Nothing is reported of one that
 * was cancelled by the text.
 */
export function outcomeOf(task: AssignedTask<object>, reported?: ReportedStatus): FuqOutcome {
  const { job, index, attempt, since: started } = task;
  const late = task.timedOut && reported?.success !== true;
  const end = reported === undefined ? {} : outcomeFromStatus(reported.success, reported.status);
  return { job, index, attempt, started, ended: now(), ...end, ...(late ? { timedOut: true } : {}) };
}

/** A worker of fuq sends no output: that of the task says where its log is. */
export function recordOutcome(core: Core, id: WorkerId, done: FuqOutcome, recorded: () => void): void {
  const { job, index, attempt } = done;
  const open = core.job(job);
  const worker = core.worker(id)?.profile.name ?? id;
  const bytes = Buffer.from(
    open === undefined ? "" : `laboro: the log is ${logPath(open, index)} on worker ${worker}\n`,
  );
  core.workerOutput(id, [{ job, index, attempt, stream: "stderr", offset: 0, bytes }], () => {});
  core.workerDone(id, [{ ...done, outputBytes: bytes.length }], recorded);
}

/** An UPDATE of a worker that has not joined, of a task that is kept for it. Resolves when it is recorded, or nobody's. */
export async function recordBeforeJoin(core: Core, id: WorkerId, update: Update): Promise<void> {
  await core.claimedBy(id);
  const job = JobId(update.jobId);
  const index = indexOfPair(core, update) ?? -1;
  const claim = core.claimOf(id, job, index);
  if (claim === undefined) return;
  const { attempt, startedAt: started = now() } = claim;
  const end = { started, ended: now(), ...outcomeFromStatus(update.success, update.status) };
  const done = { job, index, attempt, ...end };
  await new Promise<void>((resolve) => recordOutcome(core, id, done, resolve));
}
