/** A task of ours in fuq's words: its number from 1, and the description of its job. */
import { dirname } from "node:path";
import type { Job } from "../../../model/job.js";
import { kindOf } from "../../../model/recipe.js";
import { RUNNING, type Task } from "../messages.js";

/** Undefined for what a plain fuq worker cannot run. */
export function describeTask({ id, name, count, recipe }: Job, index: number): Task | undefined {
  if (recipe.kind !== "command" || kindOf(recipe) !== "numbered") return undefined;
  const { dir: workingDir = "", argv, log } = recipe;
  const [command = ""] = argv;
  const loggingDir = log === undefined ? workingDir : dirname(log);
  const job = { jobId: id, name, numTasks: count, workingDir, loggingDir, command, status: RUNNING };
  return { task: index + 1, job };
}
