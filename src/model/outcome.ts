import type { Attempt, TaskIndex } from "./ids.js";

/** How one attempt went, as its worker saw it. Times are milliseconds since 1970, on the worker's clock. */
export interface Outcome {
  /** The exit code; absent where a signal ended the process or it never started. */
  readonly code?: number;
  /** The signal that ended the process, by name: "SIGKILL". */
  readonly signal?: string;
  readonly started: number;
  readonly ended: number;
  /** Set where the task's time limit ended it. */
  readonly timedOut?: boolean;
  /** Why it did not start, or what the service answered: one line for a person. */
  readonly error?: string;
  /** How many bytes of output the task wrote, both streams together. */
  readonly outputBytes: number;
  /**
   * The whole output of the attempt, in order, at most `SMALL_OUTPUT` bytes in all. Only of an attempt that ended within
   * `SMALL_OUTPUT_MS` of its start, and of which no output was sent before its end.
   */
  readonly output?: readonly SmallOutput[];
}

export type OutputStream = "stdout" | "stderr";

/** A part of an attempt's output that is stored with its result; parts follow each other without a gap. */
export interface SmallOutput {
  readonly stream: OutputStream;
  readonly bytes: Uint8Array;
}

export const SMALL_OUTPUT = 4096;
export const SMALL_OUTPUT_MS = 100;

export const succeeded = (outcome: Outcome): boolean =>
  outcome.code === 0 && outcome.timedOut !== true && outcome.error === undefined;

export type TaskEnd = "succeeded" | "failed" | "cancelled";

/** What is kept of a finished task. */
export interface TaskResult extends Outcome {
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  readonly state: TaskEnd;
  readonly worker: string;
}
