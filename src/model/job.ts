import type { JobId } from "./ids.js";
import { NO_RANGES, type Ranges } from "./ranges.js";
import type { Bytes, Recipe, Requirement } from "./recipe.js";
import type { Strides } from "./task-numbers.js";

/** Limits of a task's attempts, and of the job as a whole. */
export interface Limits {
  /** How often a task that failed (non-zero exit, time limit) is tried again. */
  readonly retries: number;
  /** How many workers a task may lose after its start before it counts as failed. */
  readonly crashLimit: number;
  /** The rest of the job is cancelled once more tasks than this have failed. */
  readonly maxFails?: number;
  /** At most this many tasks of the job are assigned to workers at a time. */
  readonly maxRunning?: number;
  readonly timeLimitMs?: number;
  /** Output kept per attempt, in bytes; head and tail stay, the middle goes. */
  readonly outputCap: number;
  /** A client shows the output as it comes: workers relay to it what the cap does not keep. */
  readonly relay?: boolean;
}

/** The `outputCap` of a job whose output is kept whole. */
export const NO_OUTPUT_CAP = Number.MAX_SAFE_INTEGER;

export const DEFAULT_LIMITS: Limits = { retries: 0, crashLimit: 5, outputCap: 16 * 1024 * 1024 };

/** Waits for another job: for its success, or with `any` for its end. */
export interface Dependency {
  readonly job: JobId;
  readonly any: boolean;
}

/** What a client asks for. */
export interface JobSpec {
  readonly name: string;
  readonly recipe: Recipe;
  readonly requirement: Requirement;
  /** How many tasks; with `entries`, as many as these. */
  readonly count: number;
  /** The numbers of its tasks, rising, where they are neither an array's nor 1 to count. */
  readonly numbers?: Strides;
  /** The higher goes first; -1000 .. 1000. */
  readonly priority: number;
  readonly limits: Limits;
  readonly after: readonly Dependency[];
  readonly held: boolean;
  /** What makes it the same batch as another: a client that submits it again finds the one it began. */
  readonly key?: string;
  /** Chosen by the client, unique among stored jobs: a submission that is repeated with it makes no second job. */
  readonly idempotencyKey?: string;
  /** The job of the same batch whose remaining tasks this one runs. */
  readonly resumes?: JobId;
  /** A random id of the broker process that accepted it. Another store may give the job's number again, but not with this id. */
  readonly acceptedBy?: string;
}

/** One entry a task, in task order: a line of the input file, a body for a service. */
export type Entries = readonly Bytes[];

export type JobEnd = "succeeded" | "failed" | "cancelled";

/** Finished tasks by how they ended. Cancelled ones that never ran are counted here and have no result. */
export interface Counters {
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
}

export const finishedCount = (counters: Counters): number => counters.succeeded + counters.failed + counters.cancelled;

/** A job as the store keeps it. */
export interface Job extends JobSpec {
  readonly id: JobId;
  readonly created: number;
  readonly hasEntries: boolean;
  /** Tasks below this index have been granted to a broker at least once. */
  readonly cursor: number;
  /** What was asked to be cancelled: a task in here ends cancelled, whatever arrives. */
  readonly cancels: Ranges;
  /** Why the rest was cancelled, where nobody asked for it. */
  readonly reason?: string;
  readonly counters: Counters;
  readonly ended?: { readonly at: number; readonly state: JobEnd };
}

/** A job just after its submission; `cursor` tasks are granted already. */
export function newJob(spec: JobSpec, id: JobId, hasEntries: boolean, cursor: number, now: number): Job {
  return {
    ...spec,
    id,
    created: now,
    hasEntries,
    cursor,
    cancels: NO_RANGES,
    counters: { succeeded: 0, failed: 0, cancelled: 0 },
    ...(spec.count === 0 ? { ended: { at: now, state: "succeeded" } } : {}),
  };
}

/** How a job with these counters has ended, once nothing is left of it. */
export function jobEnd(counters: Counters): JobEnd {
  if (counters.failed > 0) return "failed";
  return counters.cancelled > 0 ? "cancelled" : "succeeded";
}
