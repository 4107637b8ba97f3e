/** A task of laboro in fuq's terms: its number from 1, and the description of its job. */
import type { Job } from "../../../model/job.js";
import { kindOf } from "../../../model/recipe.js";
import { RUNNING, type Task } from "../messages.js";
import { logLocation } from "./job-description.js";

/** Undefined for what a plain fuq worker cannot run. */
export function toFuqTask({ id, name: jobName, count, recipe }: Job, index: number): Task | undefined {
  if (recipe.kind !== "command" || kindOf(recipe) !== "numbered") return undefined;
  const { dir: workingDir = "", argv } = recipe;
  const [command = ""] = argv;
  const { name, logging_dir: loggingDir } = logLocation({ name: jobName, recipe });
  const job = { jobId: id, name, numTasks: count, workingDir, loggingDir, command, status: RUNNING };
  return { task: index + 1, job };
}
