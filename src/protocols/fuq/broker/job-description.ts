/** Jobs in fuq's terms: its description of a job, and its five states of one. */
import { basename, dirname, isAbsolute, join } from "node:path";
import { type JobView, summaryOf } from "../../../broker/operations/job-view.js";
import { finishedCount, type Job } from "../../../model/job.js";
import type { Submission } from "../../../model/job-input.js";
import { PLACEHOLDER, type Recipe } from "../../../model/recipe.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { HttpError, type JsonFields } from "./http/json-http.js";

export const STATUSES = ["waiting", "running", "finished", "paused", "cancelled"] as const;
export type Status = (typeof STATUSES)[number];

/** With the names that fuq's JSON has. */
export interface Description {
  readonly job_id: number;
  readonly name: string;
  readonly num_tasks: number;
  readonly working_dir: string;
  readonly logging_dir: string;
  readonly command: string;
  readonly status: Status;
}

export interface TaskDescription extends Description {
  readonly task: number;
}

/** A recipe as it is stored, or as the broker shows it. */
type AnyRecipe = Recipe | JobView["recipe"];

export function describeJob(
  job: Pick<Job, "name" | "count"> & { id: number; recipe: AnyRecipe },
  status: Status,
): Description {
  const { id, name, count, recipe } = job;
  return { job_id: id, name, num_tasks: count, ...directoriesOf(recipe), command: commandOf(recipe), status };
}

export const describeTask = (job: Job, index: number): TaskDescription => ({
  task: taskNumber(job, index),
  ...describeJob(job, "running"),
  ...logLocation(job),
});

const NUMBERED_LOG = "_{#}.log";

/**
 * A worker makes its log's name of these: LOGGING_DIR/NAME_TASK.log. A job that names no log has it where it runs; a name may be a path, as
 * that of a job which was called after its program, and must not lead elsewhere.
 */
export function logLocation({ name, recipe }: Pick<Job, "name" | "recipe">): { name: string; logging_dir: string } {
  const log = recipe.kind === "command" ? recipe.log : undefined;
  const file = log === undefined ? "" : basename(log);
  return {
    name: file.endsWith(NUMBERED_LOG) ? file.slice(0, -NUMBERED_LOG.length) : name.replaceAll("/", "_"),
    logging_dir: log === undefined ? directoriesOf(recipe).working_dir : directoriesOf(recipe).logging_dir,
  };
}

/** As the workers name it; one that is there already is not overwritten, and the next is NAME_TASK-1.log. */
export function logPath(job: Job, index: number): string {
  const { name, logging_dir: dir } = logLocation(job);
  return join(dir, `${name}_${taskNumber(job, index)}.log`);
}

/** A log begins at the task's directory, a worker of fuq at its own. */
const logDirectory = (dir: string, log: string): string =>
  dir === "" || isAbsolute(log) ? dirname(log) : join(dir, dirname(log));

/** Where it runs and where its log goes, as far as its recipe says so. */
function directoriesOf(recipe: AnyRecipe): { working_dir: string; logging_dir: string } {
  const dir = "dir" in recipe && typeof recipe.dir === "string" ? recipe.dir : "";
  const log = "log" in recipe ? recipe.log : undefined;
  return { working_dir: dir, logging_dir: log === undefined ? "" : logDirectory(dir, log) };
}

function commandOf(recipe: AnyRecipe): string {
  const program = programOf(recipe);
  if (program !== undefined) return program;
  return "summary" in recipe ? recipe.summary : summaryOf(recipe);
}

/** The program of a job as fuq has them: it gets the number of its task and nothing else. */
export function programOf(recipe: AnyRecipe): string | undefined {
  const [program, number, ...more] = ("argv" in recipe ? recipe.argv : undefined) ?? [];
  return typeof program === "string" && number === "{#}" && more.length === 0 ? program : undefined;
}

/** What the tasks of a job that was queued here are, for every worker. */
export function submissionOf(given: JsonFields): Submission {
  const name = given.text("name");
  const command = given.text("command");
  const dir = given.text("working_dir");
  const logs = given.text("logging_dir");
  const count = given.integer("num_tasks");
  if (name === "" || command === "" || dir === "" || count < 1) throw new HttpError(400);
  // What stands for something else in a recipe would not arrive as it was written.
  if (PLACEHOLDER.test(command + name + logs))
    throw new HttpError(400, "400 bad request: placeholders such as {} and {#} are not taken");
  const log = logs === "" ? {} : { log: join(logs, `${name}_{#}.log`) };
  return {
    name,
    count,
    recipe: { kind: "command", argv: [command, "{#}"], placeholders: true, dir, ...log },
    held: given.text("status") === "paused",
  };
}

/** A job of which something has run is running until it ends, whether or not something runs just now. */
export function statusOf({ state, counters }: Pick<JobView, "state" | "counters">): Status {
  switch (state) {
    case "held":
      return "paused";
    case "blocked":
    case "waiting":
      return finishedCount(counters) > 0 ? "running" : "waiting";
    case "running":
      return "running";
    case "succeeded":
    case "failed":
      return "finished";
    case "cancelled":
      return "cancelled";
  }
}
