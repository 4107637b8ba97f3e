import type { Attempt, TaskIndex } from "./ids.js";

/** The outcome of one attempt, as the worker reports it. Times are milliseconds since 1970, on the worker's clock. */
export interface Outcome {
  /** The exit code; absent where a signal ended the process or it never started. */
  readonly code?: number;
  /** The signal that ended the process, by name: "SIGKILL". */
  readonly signal?: string;
  readonly started: number;
  readonly ended: number;
  /** Set if the time limit ended the task. */
  readonly timedOut?: boolean;
  /** Why the task did not start, or the error of the service, in one line. */
  readonly error?: string;
  /** How many bytes of output the task wrote, both streams together. */
  readonly outputBytes: number;
  /**
   * CPU time of its processes, user and system, in steps of 10 ms; absent if it used less, or where it is not known.
   */
  readonly cpuMs?: number;
  /** The most memory that its processes were seen to have together, in bytes; only of tasks of a second or longer. */
  readonly peakMemory?: number;
  /**
   * The whole output of the attempt, in order, 1 to `SMALL_OUTPUT` bytes in all. Only of an attempt that ended within
   * `SMALL_OUTPUT_MS` of its start, and of which no output was sent before its end.
   */
  readonly output?: readonly SmallOutput[];
  /**
   * What the handler of the task returned, as JSON or bytes; of a failed attempt, the error as JSON
   * (handler-errors.ts).
   */
  readonly value?: Uint8Array;
  /** A failed attempt: its handler says when to try again, or not to. Only on the way to dispatch, not stored. */
  readonly retryAfterMs?: RetryAfterMs;
}

export type RetryAfterMs = number | "never";

/** A larger value is refused. */
export const MAX_VALUE = 1024 * 1024;
/** Lists of results contain values up to this size. Larger ones are read one by one. */
export const LISTED_VALUE = 4096;

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

/** The stored result of an ended task. */
export interface TaskResult extends Outcome {
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  readonly state: TaskEnd;
  readonly worker: string;
  /** The size of the value, where it is known that there is one; `value` may be left out. */
  readonly valueBytes?: number;
}
