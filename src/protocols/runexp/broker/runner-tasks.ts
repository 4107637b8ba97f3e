/** The tasks of one runner. Those that are sent are found by their name on the wire, which two jobs may share. */
import type { Core, WorkerPort } from "../../../broker/core.js";
import { type AssignedTask, AssignedTasks } from "../../../broker/sessions/assigned-tasks.js";
import { type TaskIndex, taskKey } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import type { Bytes } from "../../../model/recipe.js";
import type { SentTask } from "./experiments.js";

interface RunnerTaskFields {
  readonly entry?: Bytes | undefined;
  /** From when its script is made. */
  sent?: SentTask;
}

export type RunnerTask = AssignedTask<RunnerTaskFields>;

export interface RunnerTasksOptions {
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

  sent(name: string): (RunnerTask & { readonly sent: SentTask }) | undefined {
    const isSent = (task: RunnerTask): task is RunnerTask & { sent: SentTask } => task.sent?.name === name;
    return this.all().find(isSent);
  }

  /** The runner has this task after all. */
  adopt(sent: SentTask): void {
    const { job, index, attempt } = sent;
    this.add({ name: taskKey(job, index), sent, job, index, attempt, state: "running" });
    this.publishSlots();
  }
}
