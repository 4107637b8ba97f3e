/** The progress of a job, for clients that follow it. */
import type { Attempt, TaskIndex } from "./ids.js";
import type { Counters, JobEnd } from "./job.js";
import type { TaskResult } from "./outcome.js";

/** How a task ended. */
export interface EndedTask extends TaskResult {
  /** The number that users see. */
  readonly number: number;
}

export interface RunningTask {
  readonly index: TaskIndex;
  readonly number: number;
  readonly attempt: Attempt;
}

/** What has changed since the last message. The end of each task is reported once. */
export interface JobProgress {
  /** In the order of their ends. */
  readonly tasks: readonly EndedTask[];
  /** Tasks that run and have stored output. Only for a client that wants live output. */
  readonly running?: readonly RunningTask[];
  readonly counters?: Counters;
  readonly held?: boolean;
  /** The job has ended, and all of its tasks were sent. */
  readonly ended?: JobEnd;
}
