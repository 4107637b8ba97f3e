/** A folder of experiments, as the runexp listener sees it: the script of a task, where its result goes, and when all has ended. */
import type { Attempt, JobId, TaskIndex, WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import type { Bytes } from "../../../model/recipe.js";
import type { Status } from "../messages.js";
import type { ResFile } from "./result-file.js";

export interface Experiment {
  /** The path below the folder of scripts, without its extension. One character a byte. */
  readonly name: string;
  readonly kind: ".sh" | ".m";
  /** Of its script, below the folder of scripts. */
  readonly path: string;
}

export interface Experiments {
  /** What this task is, if its job is one of experiments. */
  experimentOf(job: Pick<Job, "id" | "key">, index: TaskIndex, entry: Bytes | undefined): Experiment | undefined;
  /** The script as it is now. Throws LABORO_BAD_INPUT where it is gone. */
  readScript(experiment: Experiment): Buffer;
  findTask(name: string): { readonly job: JobId; readonly index: TaskIndex } | undefined;
  openResult(name: string): ResFile;
  assigned(host: string, name: string): void;
  ended(host: string, name: string, status: Status): void;
  /** Where the open experiments are, as this worker sees it. */
  whereOpen(worker: WorkerId): OpenExperiments;
  /** The connection of this host has ended before it said that it goes; so many experiments wait again. */
  lost(host: string, experiments: number): void;
}

/** Some wait for a runner; or all are assigned, some of them to other workers; or there are none, or only at this worker. */
export type OpenExperiments = "waiting" | "elsewhere" | "here";

/** A task that was sent to a runner. */
export interface SentTask {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  /** By the name that it has on the wire. */
  readonly name: string;
  readonly experiment: boolean;
  /** What its last line begins with, where it reports its end. */
  readonly mark?: string;
  started: number;
}
