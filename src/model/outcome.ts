/** How attempts and tasks end, and the progress of a job that clients follow. */
import type { Attempt, TaskIndex } from "./ids.js";
import type { Counters, JobEnd } from "./job.js";

/** The outcome of one attempt, as the worker reports it. Times are milliseconds since 1970, on the worker's clock. */
export interface Outcome {
  /** The exit code; absent if a signal ended the process or it never started. */
  readonly code?: number;
  /** The signal that ended the process, by name: "SIGKILL". */
  readonly signal?: string;
  /** When the attempt started. */
  readonly started: number;
  /** When the attempt ended. */
  readonly ended: number;
  /** Set if the time limit ended the task. */
  readonly timedOut?: boolean;
  /** Why the task did not start, or the error of the service, in one line. */
  readonly error?: string;
  /** How many bytes of output the task wrote, both streams together. */
  readonly outputBytes: number;
  /** CPU time of its processes, user and system, in steps of 10 ms; absent if it is less or unknown. */
  readonly cpuMs?: number;
  /** The maximum memory of its processes together, in bytes. Measured for tasks of a second or longer. */
  readonly peakMemory?: number;
  /**
   * The whole output of the attempt, in order, 1 to `SMALL_OUTPUT` bytes in all. Only if the attempt ended within
   * `SMALL_OUTPUT_MS` of its start and no output was sent before its end.
   */
  readonly output?: readonly SmallOutput[];
  /** What the handler returned, as JSON or bytes; of a failed attempt, the error as JSON (task-definition.ts). */
  readonly value?: Uint8Array;
  /** For a failed attempt: the handler's wish when to try again, or not to. Sent to dispatch, not stored. */
  readonly retryAfterMs?: RetryAfterMs;
}

export type RetryAfterMs = number | "never";

/** A larger value is refused. */
export const MAX_VALUE = 1024 * 1024;
/** Lists of results contain values up to this size. Larger ones are read one by one. */
export const LISTED_VALUE = 4096;

/** Stores and messages number them in this order. */
export const OUTPUT_STREAMS = ["stdout", "stderr"] as const;
export type OutputStream = (typeof OUTPUT_STREAMS)[number];

/** A part of an attempt's output that is stored with its result; parts follow each other without a gap. */
export interface SmallOutput {
  readonly stream: OutputStream;
  readonly bytes: Uint8Array;
}

/** Bytes of a file that travel in one message. */
export const FILE_CHUNK = 1024 * 1024;

export const SMALL_OUTPUT = 4096;
export const SMALL_OUTPUT_MS = 100;

export const succeeded = (outcome: Outcome): boolean =>
  outcome.code === 0 && outcome.timedOut !== true && outcome.error === undefined;

export type TaskEnd = JobEnd;

/** The stored result of an ended task. */
export interface TaskResult extends Outcome {
  /** The place of the task in its job, from 0. */
  readonly index: TaskIndex;
  /** How often the task had been assigned, from 1. */
  readonly attempt: Attempt;
  /** How the task ended. */
  readonly state: TaskEnd;
  /** The name of its worker. */
  readonly worker: string;
  /** The size of the value; absent if there is none. `value` may be omitted. */
  readonly valueBytes?: number;
}

// The progress of a job, for clients that follow it.

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
  /** How many tasks have ended in which way; absent if unchanged. */
  readonly counters?: Counters;
  /** Whether the job is held; absent if unchanged. */
  readonly held?: boolean;
  /** The job has ended, and all of its tasks were sent. */
  readonly ended?: JobEnd;
}
