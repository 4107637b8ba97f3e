/** The tasks of runners: experiments by the name of their script, others as `laboro-JOB.TASK`. Each is a script. */
import { createHmac } from "node:crypto";
import { badInput } from "../../../base/errors.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import { type AssignedTask, AssignedTasks } from "../../../broker/sessions/assigned-tasks.js";
import { type Attempt, JobId, type TaskIndex, taskKey, type WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import type { Bytes } from "../../../model/recipe.js";
import { taskIndex, taskNumber } from "../../../model/task-numbers.js";
import type { Status } from "../messages.js";
import type { ResFile } from "./incoming-result.js";
import { makeTaskScript } from "./task-script.js";

export interface Experiment {
  /** The path below the folder of scripts, without its extension. One character a byte. */
  readonly name: string;
  readonly kind: ".sh" | ".m";
  /** Of its script, below the folder of scripts. */
  readonly path: string;
}

/** A folder of experiments, as the listener sees it. */
export interface Experiments {
  /** Undefined for a task of another job. */
  experimentOf(job: Pick<Job, "id" | "batchKey">, index: TaskIndex, entry: Bytes | undefined): Experiment | undefined;
  /** The current script. Throws LABORO_BAD_INPUT if it does not exist any more. */
  readScript(experiment: Experiment): Buffer;
  findTask(name: string): { readonly job: JobId; readonly index: TaskIndex } | undefined;
  /** It has a result, of this run or of an earlier one. */
  isDone(name: string): boolean;
  openResult(name: string): ResFile;
  assigned(host: string, name: string): void;
  ended(host: string, name: string, status: Status): void;
  /** Where the open experiments are: some wait, some are at other workers, or all are at this worker. */
  whereOpen(worker: WorkerId): "waiting" | "elsewhere" | "here";
  /** The connection of this host ended unexpectedly; `experiments` of them wait again. */
  lost(host: string, experiments: number): void;
}

export interface SentTask {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  /** On the wire. */
  readonly name: string;
  readonly experiment: boolean;
  /** The beginning of its last line, if it reports its outcome. */
  readonly mark?: string;
  started: number;
}

interface RunnerTaskFields {
  readonly entry?: Bytes | undefined;
  sent?: SentTask;
}

export type RunnerTask = AssignedTask<RunnerTaskFields>;

interface RunnerTasksOptions {
  readonly slots: (used: number) => number;
  readonly mayTake: () => boolean;
  readonly onPending: () => void;
}

export class RunnerTasks extends AssignedTasks<RunnerTaskFields> {
  readonly #options: RunnerTasksOptions;

  constructor(core: Core, port: WorkerPort, options: RunnerTasksOptions) {
    super(core, port);
    this.#options = options;
  }

  protected describe(job: Job, index: TaskIndex, entry: Bytes | undefined) {
    return { name: taskKey(job.id, index), entry };
  }

  protected slots(): number {
    return this.#options.slots(this.usedSlots);
  }

  protected override mayTake(): boolean {
    return this.#options.mayTake();
  }

  protected pending(): void {
    this.#options.onPending();
  }

  /** By the name on the wire, which tasks of two jobs may share. */
  sent(name: string): RunnerTask | undefined {
    return this.all().find(({ sent }) => sent?.name === name);
  }

  /** The runner turned out to have this task. */
  adopt(sent: SentTask): void {
    const { job, index, attempt } = sent;
    this.add({ name: taskKey(job, index), sent, job, index, attempt, state: "running" });
    this.publishSlots();
  }
}

export interface PackedTask {
  readonly sent: SentTask;
  readonly kind: string;
  readonly content: Buffer;
}

/** The script for a task. Throws LABORO_BAD_INPUT if no runner can run it. */
export function packTask(
  job: Job,
  { index, attempt, entry }: Pick<RunnerTask, "index" | "attempt" | "entry">,
  experiments: Experiments | undefined,
  secret: string,
): PackedTask {
  const base = { job: job.id, index, attempt, started: 0 };
  const experiment = experiments?.experimentOf(job, index, entry);
  if (experiments !== undefined && experiment !== undefined) {
    const content = experiments.readScript(experiment);
    return { sent: { ...base, name: experiment.name, experiment: true }, kind: experiment.kind, content };
  }
  const { recipe } = job;
  if (recipe.kind !== "command" && recipe.kind !== "script")
    throw badInput(`a runexp runner cannot run a recipe of kind ${recipe.kind}`);
  const mark = markOf(secret, job.id, index);
  const { timeLimitMs } = job.limits;
  const number = taskNumber(job, index);
  const script = makeTaskScript(recipe, { job: job.id, index, number, attempt, entry, timeLimitMs }, mark);
  const sent = { ...base, name: taskName(job, index), experiment: false };
  return { sent: script.reportsOutcome ? { ...sent, mark } : sent, kind: script.kind, content: script.content };
}

/** The beginning of a task's last line. Nobody can guess it, and it is the same after a restart. */
export const markOf = (secret: string, job: JobId, index: TaskIndex): string =>
  createHmac("sha256", secret).update(`${job}.${index}`).digest("hex").slice(0, 16);

export const taskName = (job: Job, index: TaskIndex): string => `laboro-${job.id}.${taskNumber(job, index)}`;

/** The key of an assignment. An experiment's name can belong to another job later. */
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
