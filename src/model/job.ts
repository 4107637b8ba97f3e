import type { JobId } from "./ids.js";
import { NO_RANGES, type Ranges } from "./ranges.js";
import type { Bytes, Recipe, Requirement } from "./recipe.js";
import type { Strides } from "./task-numbers.js";

/** When a failed task is tried again. What is absent is the broker's default, see dispatch/settings.ts. */
export interface RetryPolicy {
  /** Before the first retry. */
  readonly waitMs?: number;
  /** Factor between two successive waits. */
  readonly factor?: number;
  /** The longest wait. */
  readonly maxMs?: number;
  /** The part of a wait that is random, 0 to 1: with 0.2 a wait is 80 % to 100 % of its length. */
  readonly jitter?: number;
  /** Only these ends are retried: exit codes (128 + n for signal n), `timeout`, names and codes of errors. */
  readonly on?: readonly (number | string)[];
  /** These ends are not retried. */
  readonly never?: readonly (number | string)[];
}

/** When this many tasks have failed, succeeded or ended, the rest of the job is cancelled. */
export interface HaltRule {
  readonly on: "fail" | "success" | "done";
  readonly count: number;
  /** Running tasks are cancelled, too. Otherwise they finish. */
  readonly now?: boolean;
}

type OrUndefined<T> = { readonly [K in keyof T]: T[K] | undefined };

export const haltRuleOf = <Rule extends OrUndefined<HaltRule> = HaltRule>({
  halt,
  maxFails,
}: {
  readonly halt?: Rule | undefined;
  readonly maxFails?: number | undefined;
}): Rule | HaltRule | undefined => halt ?? (maxFails === undefined ? undefined : { on: "fail", count: maxFails + 1 });

/** How many more tasks must end for the rule to apply. */
export const leftToHalt = (
  { on, count }: HaltRule,
  { succeeded, failed }: Pick<Counters, "succeeded" | "failed">,
): number => count - (on === "success" ? 0 : failed) - (on === "fail" ? 0 : succeeded);

/** Limits of a task's attempts, and of the job as a whole. */
export interface Limits {
  /** How often a failed task (non-zero exit, time limit) is tried again. */
  readonly retries: number;
  readonly retry?: RetryPolicy;
  /** A task fails when this many workers were lost while they ran it. */
  readonly crashLimit: number;
  /** A halt rule for failures: the rest of the job is cancelled when more tasks than this have failed. */
  readonly maxFails?: number;
  readonly halt?: HaltRule;
  /** At most this many tasks of the job run at a time. */
  readonly maxRunning?: number;
  /** The named limits that its tasks count against (limit.ts), sorted and without duplicates; absent for none. */
  readonly named?: readonly string[];
  readonly timeLimitMs?: number;
  /** The time limit in percent of the median of the job's succeeded tasks at the same worker. */
  readonly timeLimitPercent?: number;
  /** A worker that ends sooner than this gets no task of the job; `timeLimitMs` if absent. */
  readonly timeRequestMs?: number;
  /** How many bytes of output are stored per attempt: the head and the tail. */
  readonly outputCap: number;
  /** Workers also send output beyond the cap, for clients that follow the job. */
  readonly relay?: boolean;
}

/** The longest delay, wait or time to keep something: 100 years. */
export const MAX_MS = 100 * 365 * 86_400_000;

/** The `outputCap` of a job whose complete output is stored. */
export const NO_OUTPUT_CAP = Number.MAX_SAFE_INTEGER;

export const DEFAULT_LIMITS: Limits = { retries: 0, crashLimit: 5, outputCap: 16 * 1024 * 1024 };

/** Waits for another job's success, with `any` its end. `each`: each task waits for the one in its place. */
export interface Dependency {
  readonly job: JobId;
  readonly any: boolean;
  readonly each?: true;
}

export const IF_EXISTS = ["return", "refuse", "replace"] as const;
export type IfExists = (typeof IF_EXISTS)[number];

/** Changes of a job after its submission: by `edit`, and by appended tasks. */
export interface JobChanges {
  readonly name?: string;
  readonly priority?: number;
  readonly maxRunning?: number;
  readonly timeLimitMs?: number;
  /** All numbers of the job, of its array or else of its tasks. */
  readonly array?: Strides;
  readonly numbers?: Strides;
  /** The last appends: the client's key, the first task and the number of tasks. */
  readonly appended?: readonly (readonly [key: string, first: number, count: number])[];
}

/** A submitted job. */
export interface JobSpec {
  readonly name: string;
  readonly recipe: Recipe;
  readonly requirement: Requirement;
  /** How many tasks; with entries, one per entry. */
  readonly count: number;
  /** The numbers of its tasks, rising, if they are neither those of an array nor 1 to count. */
  readonly numbers?: Strides;
  /** Higher priority runs first; -1000 .. 1000. */
  readonly priority: number;
  readonly limits: Limits;
  readonly after: readonly Dependency[];
  readonly held: boolean;
  /** Accepts tasks until it is closed, and does not end before. Elsewhere, an open job is one that has not ended. */
  readonly open?: true;
  /** Identifies the batch: a client that submits it again finds the earlier job. Not unique. */
  readonly batchKey?: string;
  /** The earliest start, by the store's clock. */
  readonly notBefore?: number;
  /** The requested delay, from which `notBefore` is derived. Absent if the client gave a time. */
  readonly delayMs?: number;
  /** Unique: one job has it until it ends, and for `keyForMs` after that. */
  readonly key?: string;
  readonly keyForMs?: number;
  /** What to do if another job has the key. `return`, the default, answers with that job. */
  readonly ifExists?: IfExists;
  /** How long it is kept after its end; the broker's default if absent. */
  readonly keepMs?: number;
  /** For a job that did not succeed; `keepMs` if absent. */
  readonly keepFailedMs?: number;
  /** Chosen by the client, unique among stored jobs. A repeated submission with the same key makes no second job. */
  readonly idempotencyKey?: string;
  /** The job of the same batch whose remaining tasks this job runs. */
  readonly resumes?: JobId;
  /** A random id of the broker process that accepted the job: numbers alone are not unique across stores. */
  readonly acceptedBy?: string;
}

/** A larger submission is read in a thread. */
export const LARGE_SUBMISSION = 1024 * 1024;

/** One entry per task, in task order: a line of the input file, or the body of a request. */
export type Entries = readonly Bytes[];

/** Stores and messages number them in this order. */
export const END_STATES = ["succeeded", "failed", "cancelled"] as const;
/** How a job ended: `succeeded` if all of its tasks did. */
export type JobEnd = (typeof END_STATES)[number];

/** Ended tasks by outcome. Tasks that were cancelled before they ran are counted here, but have no result. */
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
  /** Tasks for which a cancel was requested. They end as cancelled whatever their results are. */
  readonly cancels: Ranges;
  /** Why the broker cancelled the rest. */
  readonly reason?: string;
  readonly counters: Counters;
  /** The store has not promoted it yet (`promote` in store.ts): its `notBefore` lies ahead, or has just passed. */
  readonly delayed?: true;
  readonly appended?: JobChanges["appended"];
  readonly ended?: { readonly at: number; readonly state: JobEnd };
}

/** Whether the store hides the job until it is promoted. A job that waits for other jobs must be known before. */
export const isParked = (spec: JobSpec): boolean =>
  spec.notBefore !== undefined && spec.after.length === 0 && !endsAtOnce(spec);

/** A job without tasks ends with its submission. */
const endsAtOnce = ({ count, open }: JobSpec): boolean => count === 0 && open !== true;

/** A spec with the changes since its submission. */
export function currentSpec(
  { open: _, ...spec }: JobSpec,
  { count, open, changes }: { readonly count: number; readonly open: boolean; readonly changes: JobChanges | null },
): JobSpec & Pick<Job, "appended"> {
  const now = open ? { ...spec, count, open: true as const } : { ...spec, count };
  if (changes === null) return now;
  const { maxRunning, timeLimitMs, array, ...others } = changes;
  const limits = {
    ...spec.limits,
    ...(maxRunning === undefined ? {} : { maxRunning }),
    ...(timeLimitMs === undefined ? {} : { timeLimitMs }),
  };
  const recipe = array === undefined ? {} : { recipe: { ...spec.recipe, array } as Recipe };
  return { ...now, ...others, ...recipe, limits };
}

/** A job just after its submission; `cursor` tasks are granted already. */
export function newJob(spec: JobSpec, id: JobId, hasEntries: boolean, cursor: number, now: number): Job {
  const counters = { succeeded: 0, failed: 0, cancelled: 0 };
  // The spread comes last: V8 takes forty times as long to add as many members to a copy.
  const job = { id, created: now, hasEntries, cursor, cancels: NO_RANGES, counters, ...spec };
  if (endsAtOnce(spec)) return { ...job, ended: { at: now, state: "succeeded" } };
  return isParked(spec) ? { ...job, delayed: true } : job;
}

/** The end state of a job whose tasks have all ended. */
export function jobEnd(counters: Counters): JobEnd {
  if (counters.failed > 0) return "failed";
  return counters.cancelled > 0 ? "cancelled" : "succeeded";
}
