/** The script that a runner gets for a task, and its name. */
import { createHmac } from "node:crypto";
import { badInput } from "../../../base/errors.js";
import { type Attempt, JobId, type TaskIndex, taskKey } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import type { Bytes } from "../../../model/recipe.js";
import { taskIndex, taskNumber } from "../../../model/task-numbers.js";
import type { Experiments, SentTask } from "./experiments.js";
import { makeTaskScript } from "./task-script.js";

/** A task that is assigned to a runner and not sent yet. */
export interface UnsentTask {
  readonly job: Job;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  readonly entry?: Bytes | undefined;
}

export interface PackedTask {
  readonly sent: SentTask;
  readonly kind: string;
  readonly content: Buffer;
}

/** Throws LABORO_BAD_INPUT where no runner can do it. */
export function packTask(task: UnsentTask, experiments: Experiments | undefined, secret: string): PackedTask {
  const { job, index, attempt, entry } = task;
  const base = { job: job.id, index, attempt, started: 0 };
  const experiment = experiments?.experimentOf(job, index, entry);
  if (experiments !== undefined && experiment !== undefined) {
    const content = experiments.readScript(experiment);
    return { sent: { ...base, name: experiment.name, experiment: true }, kind: experiment.kind, content };
  }
  const { recipe } = job;
  if (recipe.kind !== "command" && recipe.kind !== "script") {
    throw badInput(`a runexp runner cannot do a ${recipe.kind}`);
  }
  const mark = markOf(secret, job.id, index);
  const { timeLimitMs } = job.limits;
  const number = taskNumber(job, index);
  const script = makeTaskScript(recipe, { job: job.id, index, number, attempt, entry, timeLimitMs }, mark);
  const sent = { ...base, name: taskName(job, index), experiment: false };
  return { sent: script.reportsOutcome ? { ...sent, mark } : sent, kind: script.kind, content: script.content };
}

/** What a task's last line begins with: nobody can guess it, and it is the same when the result comes after a restart. */
export const markOf = (secret: string, job: JobId, index: TaskIndex): string =>
  createHmac("sha256", secret).update(`${job}.${index}`).digest("hex").slice(0, 16);

/** How a task that is no experiment is called on the wire: `laboro-JOB.TASK`, with its number. */
export const taskName = (job: Job, index: TaskIndex): string => `laboro-${job.id}.${taskNumber(job, index)}`;

/** What the assignment of a task is remembered by: an experiment's name can belong to another job later. */
export const assignmentKey = ({ job, index, name, experiment }: Omit<SentTask, "attempt" | "started">): string =>
  experiment ? taskKey(job, index) : name;

export interface NamedTask {
  readonly assignment: string;
  /** Absent if its job is not open. */
  readonly task?: Pick<SentTask, "job" | "index" | "experiment">;
}

/** The task of this name, whether or not it was ever assigned. */
export function findTaskByName(
  name: string,
  experiments: Experiments | undefined,
  openJob: (id: JobId) => Job | undefined,
): NamedTask {
  const experiment = experiments?.findTask(name);
  if (experiment !== undefined) {
    const task = { ...experiment, experiment: true };
    return { assignment: assignmentKey({ ...task, name }), task };
  }
  const [, id, number] = /^laboro-(\d{1,15})\.(\d{1,16})$/.exec(name) ?? [];
  const job = id === undefined ? undefined : openJob(JobId(Number(id)));
  const index = job === undefined ? undefined : taskIndex(job, Number(number));
  if (job === undefined || index === undefined) return { assignment: name };
  return { assignment: name, task: { job: job.id, index, experiment: false } };
}
