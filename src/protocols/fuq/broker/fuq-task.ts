/** A task of laboro in fuq's terms: its number, and the description of its job. */
import type { Core } from "../../../broker/core.js";
import { JobId, type TaskIndex } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { kindOf } from "../../../model/recipe.js";
import { taskIndex, taskNumber } from "../../../model/task-numbers.js";
import { RUNNING, type Task, type TaskPair } from "../messages.js";
import { logLocation } from "./job-description.js";

/** Undefined for what a plain fuq worker cannot run. */
export function toFuqTask(given: Job, index: TaskIndex): Task | undefined {
  const { id, name: jobName, count, recipe } = given;
  if (recipe.kind !== "command" || kindOf(recipe) !== "numbered") return undefined;
  const { dir: workingDir = "", argv } = recipe;
  const [command = ""] = argv;
  const { name, logging_dir: loggingDir } = logLocation({ name: jobName, recipe });
  const job = { jobId: id, name, numTasks: count, workingDir, loggingDir, command, status: RUNNING };
  return { task: taskNumber(given, index), job };
}

/** What a task is kept under: its worker names it by the job and its number. */
export const nameOf = (jobId: number, task: number): string => `${jobId}.${task}`;

/** Undefined where no open job has this task. */
export function indexOfPair(core: Core, { jobId, task }: TaskPair): TaskIndex | undefined {
  const open = core.job(JobId(jobId));
  return open && taskIndex(open, task);
}
