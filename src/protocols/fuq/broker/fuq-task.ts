/** A task of laboro in fuq's terms: its number, the description of its job, its log, and its outcome. */
import { basename, dirname, isAbsolute, join } from "node:path";
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import type { AssignedTask } from "../../../broker/sessions/assigned-tasks.js";
import type { Done } from "../../../dispatch/index.js";
import { JobId, type TaskIndex, type WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { kindOf } from "../../../model/recipe.js";
import { taskIndex, taskNumber } from "../../../model/task-numbers.js";
import { RUNNING, type Task, type TaskPair, type Update } from "../messages.js";
import { outcomeFromStatus } from "../outcome.js";

/** What all workers of fuq have in common. */
export const FUQ_WORKER = { canPrefetch: false, taskKinds: ["numbered"] } as const;

/** Undefined for what a plain fuq worker cannot run. */
export function toFuqTask(given: Job, index: TaskIndex): Task | undefined {
  const { id: jobId, count: numTasks, recipe } = given;
  if (recipe.kind !== "command" || kindOf(recipe) !== "numbered") return undefined;
  const { dir: workingDir = "", argv } = recipe;
  const [command = ""] = argv;
  const job = { jobId, ...logLocation(given), numTasks, workingDir, command, status: RUNNING };
  return { task: taskNumber(given, index), job };
}

/** Undefined where no open job has this task. */
export function indexOfPair(core: Core, { jobId, task }: TaskPair): TaskIndex | undefined {
  const open = core.job(JobId(jobId));
  return open && taskIndex(open, task);
}

const NUMBERED_LOG = "_{#}.log";

/**
 * A worker makes its log's name of these: LOGGING_DIR/NAME_TASK.log. A job that names no log has it where it runs; a name may be a path, as
 * that of a job which was called after its program, and must not lead elsewhere.
 */
function logLocation({ name, recipe }: Job): { name: string; loggingDir: string } {
  const { dir, log } = recipe.kind === "command" ? recipe : {};
  const workingDir = typeof dir === "string" ? dir : "";
  const file = log === undefined ? "" : basename(log);
  return {
    name: file.endsWith(NUMBERED_LOG) ? file.slice(0, -NUMBERED_LOG.length) : name.replaceAll("/", "_"),
    loggingDir: log === undefined ? workingDir : logDirectory(workingDir, log),
  };
}

/** A log begins at the task's directory, a worker of fuq at its own. */
export const logDirectory = (dir: string, log: string): string =>
  dir === "" || isAbsolute(log) ? dirname(log) : join(dir, dirname(log));

/** As the workers name it; one that is there already is not overwritten, and the next is NAME_TASK-1.log. */
function logPath(job: Job, index: TaskIndex): string {
  const { name, loggingDir } = logLocation(job);
  return join(loggingDir, `${name}_${taskNumber(job, index)}.log`);
}

type FuqOutcome = Omit<Done, "outputBytes">;

/**
 * One that was over its time limit and has not succeeded meanwhile timed out, whatever its worker reports. Nothing is reported of one that
 * was cancelled by the text.
 */
export function outcomeOf(task: AssignedTask<object>, reported?: Pick<Update, "success" | "status">): FuqOutcome {
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
  await new Promise<void>((resolve) => recordOutcome(core, id, { job, index, attempt, ...end }, resolve));
}
