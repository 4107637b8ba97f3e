/** What a client learns of a job that it follows. */
import type { Attempt, TaskIndex } from "./ids.js";
import type { Counters, JobEnd } from "./job.js";
import type { TaskResult } from "./outcome.js";

export interface EndedTask extends TaskResult {
  /** What people call it. */
  readonly number: number;
}

export interface RunningTask {
  readonly index: TaskIndex;
  readonly number: number;
  readonly attempt: Attempt;
}

/** What has changed since the last one. Each end of a task is in one of them. */
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
