/**
 * The durable state, and how a broker changes it. Both engines implement this; no type of a connection or transaction
 * is visible.
 *
 * A task of a job is in exactly one place:
 * - beyond the job's cursor: never granted to any broker;
 * - in one task range and without a result: waiting at the broker that owns the range, or claimed by a worker;
 * - recorded: it has a result row, or it lies in the job's `cancels` and in no task range.
 *
 * A broker is identified by its epoch, a number that rises with every start of a broker on this store. A task range
 * belongs to one epoch, and every change to it is conditional on (task range, epoch). Where that finds no row the
 * result is `lost`, and the broker drops the range. Adoption gives a worker's task ranges to another epoch, so that the
 * writes of the former owner are lost.
 *
 * Writes come in batches. A batch is one transaction: durable as a whole when the promise resolves, in the order given.
 */
import type { Attempt, JobId, TaskIndex, TaskRangeId, WorkerId } from "./ids.js";
import type { Counters, Entries, Job, JobChanges, JobEnd, JobSpec } from "./job.js";
import type { LimitStart } from "./limit.js";
import type { OutputStream, TaskEnd, TaskResult } from "./outcome.js";
import type { Range, Ranges } from "./ranges.js";
import type { ScheduleChange, ScheduleChangeResult, SchedulePage, ScheduleQuery } from "./schedule.js";
import type { Group } from "./store-group.js";
import type {
  EndCounts,
  JobFilter,
  JobPage,
  KeyValue,
  NextDelayed,
  OutputOptions,
  OutputPage,
  ResultOptions,
  ResultPage,
  TaskUsage,
} from "./store-reads.js";

/** A range of tasks of one job with one history. Its id is chosen by the broker and never used twice on one store. */
export interface TaskRange extends Range {
  readonly id: TaskRangeId;
  readonly job: JobId;
  /** The attempt of the last assignment of these tasks; 0 if they were never assigned. */
  readonly attempt: Attempt;
  /** How often these tasks have failed, against the job's retries. */
  readonly failures: number;
  /** How many workers were lost while they ran these tasks, against the crash limit. */
  readonly crashes: number;
  /** Backoff: not assigned before this time (ms since 1970); 0 for at once. */
  readonly notBefore: number;
  /** The length of that wait when it began. A longer wait shows that a clock was set back: the range counts as due. */
  readonly waitMs?: number;
  /** The worker where they last failed. Another worker is preferred. */
  readonly avoid?: WorkerId;
  /** The worker that has claimed them; absent while they wait. */
  readonly worker?: WorkerId;
}

export type Epoch = number;

export interface OutputChunk {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  readonly stream: OutputStream;
  /** Position in the attempt's output, both streams counted together. */
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/** A run of entries as it is stored, see store/rows.ts. */
export interface EntryChunk extends Range {
  readonly bytes: Uint8Array;
}

export interface PackedEntries {
  readonly chunks: readonly EntryChunk[];
}

export type Write =
  /**
   * A new job. Its first `lease` tasks are granted to the submitting broker as task range `rangeId`. If another job has
   * the same `idempotencyKey`, nothing is created and the result is `duplicate`. The same applies if another job has
   * its `key`, unless `ifExists` is `replace`: then that job loses the key and is cancelled.
   *
   * A job with `notBefore` that does not wait for another job is `delayed`: it is not among the open jobs of `open`
   * until a `promote`. Its `lease` is 0.
   */
  | {
      readonly op: "submit";
      /** A number that this broker may assign, see `RecoveredState.nextJob`; else the store assigns the next. */
      readonly id?: JobId;
      readonly job: JobSpec;
      readonly entries?: Entries | PackedEntries;
      readonly lease: number;
      readonly rangeId: TaskRangeId;
    }
  /**
   * Grant up to `max` tasks of a job: first released ranges that are due, in task order and with their ids, then tasks
   * from the cursor, as `rangeId`. If a released range is too large, its first part is granted as `rangeId`.
   */
  | {
      readonly op: "lease";
      readonly job: JobId;
      readonly max: number;
      readonly rangeId: TaskRangeId;
      /**
       * In a shared store: grants no more tasks than these named limits, and `maxRunning` of the job, permit. Leased
       * tasks count, whether they wait or run. The ranges keep the limits, through claims and replacements, until they
       * are released.
       */
      readonly limits?: readonly string[];
      readonly maxRunning?: number;
    }
  /**
   * Hand [first, last], at either end of the waiting range `from` or all of it, to a worker as the new range `rangeId`,
   * with the history of `from`. The rest stays `from`.
   */
  | {
      readonly op: "claim";
      readonly from: TaskRangeId;
      readonly rangeId: TaskRangeId;
      readonly first: number;
      readonly last: number;
      readonly attempt: Attempt;
      readonly worker: WorkerId;
      /** By name. For limits with a rate, the starts are recorded. */
      readonly limits?: readonly string[];
    }
  /**
   * Record results of tasks in `rangeId`. `empty`: no task is left in it, and it is deleted. A task among the job's
   * cancels is recorded as cancelled whatever its result is: the broker may not know of the cancel yet.
   */
  | {
      readonly op: "settle";
      readonly job: JobId;
      readonly rangeId: TaskRangeId;
      readonly results: readonly TaskResult[];
      readonly empty: boolean;
      /** Other brokers may wait for a limit that these tasks counted against. */
      readonly limited?: true;
    }
  /**
   * Replace `rangeId` by `replacements`: tasks that wait again, and tasks that stay with the worker. `earlierAttempts`
   * are results of attempts that are not the task's last. `cancelled` counts tasks that a cancel removes before they
   * run. Tasks of `rangeId` in no replacement must have a result or be among `cancelled`.
   */
  | {
      readonly op: "replace";
      readonly job: JobId;
      readonly rangeId: TaskRangeId;
      readonly replacements: readonly TaskRange[];
      readonly earlierAttempts: readonly TaskResult[];
      readonly cancelled: number;
      /** As in `settle`. */
      readonly limited?: true;
    }
  /** Release a waiting range for any broker to lease. Cancelled tasks at its ends are removed and counted. */
  | { readonly op: "release"; readonly rangeId: TaskRangeId }
  /** Take over the claims of a worker at other brokers. */
  | { readonly op: "adopt"; readonly worker: WorkerId }
  | { readonly op: "hold"; readonly job: JobId; readonly held: boolean }
  /**
   * Add to the job's cancels, unless it has ended. When all tasks beyond the cursor are cancelled, they are counted as
   * cancelled at once and the cursor moves to the end. So are cancelled tasks at the ends of released ranges. A cancel
   * that reaches beyond the last task closes a job that is open for more. `unclaimed`: tasks in ranges of workers are
   * not cancelled.
   */
  | {
      readonly op: "cancel";
      readonly job: JobId;
      readonly ranges: Ranges;
      readonly reason?: string;
      readonly unclaimed?: boolean;
    }
  /**
   * Change a job that has not ended: its spec; more tasks at its end, if it is open for them and has `at` tasks now.
   * `close` closes it, and ends it if all tasks have ended. In a group, leased task ranges count against a new
   * `maxRunning`.
   */
  | {
      readonly op: "edit";
      readonly job: JobId;
      readonly changes?: JobChanges;
      readonly append?: { readonly at: number; readonly count: number; readonly entries?: Entries };
      readonly close?: true;
    }
  /**
   * Let ended tasks run again: their results become earlier attempts, the counters are reduced, and an ended job is
   * reopened. `ends` selects outcomes, within `ranges` or the whole job; tasks that were cancelled before they ran
   * count as cancelled. The tasks leave the cancels; the reason is removed with the last of these. They wait as task
   * ranges of this broker, without failures and crashes: one range for each run of neighbours with the same last stored
   * attempt, or 0. `rangeId` is the id of the first range, the others get the ids after it. A task whose range still
   * holds running tasks is skipped: its worker may send its result again.
   */
  | {
      readonly op: "rerun";
      readonly job: JobId;
      readonly ends: readonly TaskEnd[];
      readonly ranges?: Ranges;
      readonly rangeId: TaskRangeId;
      /** How many ids are free from `rangeId` on; a rerun that needs more ranges is refused. */
      readonly idCount: number;
    }
  /**
   * Delayed jobs whose time has come become ordinary jobs, earliest first, at most `max`. `clock` is the time for jobs
   * with a named time, `steady` for those with `delayMs` (broker/delayed-jobs.ts).
   */
  | { readonly op: "promote"; readonly clock: number; readonly steady: number; readonly max: number }
  /**
   * Delete an ended job and everything that belongs to it. An open job stays unchanged. A large job takes several
   * writes: each deletes some of its results, in task order, and the last the job itself.
   */
  | { readonly op: "remove"; readonly job: JobId }
  /**
   * Store a small text under a key: the config pushed to workers, their standing, the tokens of a group. `null` deletes
   * it. With `version`, only if that is the current version (0: none). Each change increments it.
   */
  | {
      readonly op: "put";
      readonly bucket: string;
      readonly key: string;
      readonly value: string | null;
      readonly version?: number;
    }
  /** Bytes of output, synced before this batch is committed. Not after the attempt's end, nor beside its `output`. */
  | { readonly op: "output"; readonly chunks: readonly OutputChunk[] }
  /** Changes of schedules, each with the writes of its run. */
  | { readonly op: "schedule"; readonly changes: readonly ScheduleChange[] };

/** The state of a job after a write that may have ended it. */
export interface Progress {
  readonly counters: Counters;
  readonly ended?: JobEnd;
}

/**
 * One per write, in order. `lost`: the task range no longer belongs to this epoch; nothing was changed. `mayLease`:
 * another lease of this job would grant something now.
 */
export type WriteResult =
  /** `replaced` is the job that had the key, with its progress after the cancel. */
  | {
      readonly op: "submit";
      readonly job: Job;
      readonly taskRange?: TaskRange;
      readonly replaced?: { readonly job: JobId; readonly progress?: Progress };
    }
  /** Of a submit: the existing job. `byKey`: it has the same `key`. */
  | { readonly op: "duplicate"; readonly job: JobId; readonly byKey?: true }
  | {
      readonly op: "lease";
      readonly job: JobId;
      readonly taskRanges: readonly TaskRange[];
      readonly mayLease: boolean;
      /** A limit permits less than was requested. Without a name it is the job's own `maxRunning`. */
      readonly limited?: LeaseLimit;
    }
  /** With the entries of the tasks, if the job has entries. */
  | { readonly op: "claim"; readonly lost: boolean; readonly entries?: Entries }
  | { readonly op: "settle"; readonly lost: boolean; readonly progress?: Progress }
  | { readonly op: "replace"; readonly lost: boolean; readonly progress?: Progress }
  | { readonly op: "release"; readonly lost: boolean; readonly job?: JobId; readonly progress?: Progress }
  | { readonly op: "adopt"; readonly taskRanges: readonly ClaimedRange[] }
  | { readonly op: "hold"; readonly found: boolean }
  | { readonly op: "cancel"; readonly progress?: Progress }
  /** `job` as it is now; absent if there is none. `progress` if it has ended, now or before. */
  | { readonly op: "edit"; readonly job?: Job; readonly refused?: EditRefusal; readonly progress?: Progress }
  /**
   * `job` as it is now; absent if there is none. `count` tasks run again. `refused`: why nothing was changed, an error
   * for the caller (LABORO_BAD_INPUT). The batch is not rolled back, because it contains other writes.
   */
  | {
      readonly op: "rerun";
      readonly job?: Job;
      readonly taskRanges: readonly TaskRange[];
      readonly count: number;
      readonly refused?: string;
    }
  | { readonly op: "promote"; readonly jobs: readonly Job[] }
  /** `more`: the job is still there, and another write removes more of it. */
  | { readonly op: "remove"; readonly removed: boolean; readonly more?: true }
  /** `version`: the current one, which is the new one if the text was stored; 0 if there is none. */
  | { readonly op: "put"; readonly stored: boolean; readonly version: number }
  | { readonly op: "output" }
  /** One for each change, in order. */
  | { readonly op: "schedule"; readonly changes: readonly ScheduleChangeResult[] };

/** Why an edit has changed nothing: the job has ended, is not open, or does not have the expected number of tasks. */
type EditRefusal = "ended" | "closed" | "count";

export function editRefusal(
  job: { readonly ended: boolean; readonly open: boolean; readonly count: number },
  { append }: Extract<Write, { op: "edit" }>,
): EditRefusal | undefined {
  if (job.ended) return "ended";
  if (append === undefined) return undefined;
  return job.open ? (job.count === append.at ? undefined : "count") : "closed";
}

export interface LeaseLimit {
  readonly limit?: string;
  /** In how many milliseconds its rate permits another start; absent if it waits for the end of a task. */
  readonly nextMs?: number;
}

/** A task range, and which of its tasks already have a result. */
export interface ClaimedRange {
  readonly taskRange: TaskRange;
  readonly settled: Ranges;
}

/** What a broker recovers when it opens the store. */
export interface RecoveredState {
  /** A random id, created with the store. The same for all brokers of a group. */
  readonly identity: string;
  readonly epoch: Epoch;
  /**
   * Only if one broker owns the store: the next free job number, which the broker may assign. Then decisions about a
   * new job can be in the same batch as its submission.
   */
  readonly nextJob?: JobId;
  /** Every job that has not ended and is not delayed. */
  readonly jobs: readonly Job[];
  readonly taskRanges: readonly ClaimedRange[];
  /** Starts within the intervals of limits, if one broker owns the store. */
  readonly limitStarts?: readonly LimitStart[];
}

/** What a worker remembers of the store of its last broker. */
export interface RememberedStore {
  readonly identity: string;
  readonly epoch: Epoch;
  /** The highest job number of its tasks; 0 if it had none. */
  readonly job: JobId;
  readonly acceptedBy?: string | undefined;
}

export interface Store {
  /** Present if brokers share the store. */
  readonly group?: Group;
  /** Other brokers may use the same store. Then workers' claims are adopted on JOIN. */
  readonly shared: boolean;
  /** Takes a new epoch and the task ranges of this broker's earlier ones. Returns the open state. Called once. */
  open(now: number): Promise<RecoveredState>;
  /**
   * One transaction, one fsync. Batches that arrive meanwhile follow in order. A rejected batch has changed nothing.
   * After LABORO_DISK_FULL and LABORO_STORE_UNAVAILABLE the same batch can be given again. LABORO_INTERNAL is an
   * invalid batch, such as one with the same task range id twice. LABORO_LEASE_LOST is the end of this epoch, also if
   * the connection broke during a batch and it is unknown whether it was committed.
   */
  commit(writes: readonly Write[], now: number): Promise<readonly WriteResult[]>;
  job(id: JobId): Promise<Job | undefined>;
  /** Newest first. `before` selects the next page. */
  jobs(options: { readonly before?: JobId; readonly limit: number; readonly filter?: JobFilter }): Promise<JobPage>;
  /** Ended jobs whose time is over, by their own or the given times. A job that still has its key is kept. */
  expiredJobs(now: number, keep: { keepMs?: number; keepFailedMs?: number }, limit: number): Promise<readonly JobId[]>;
  /** The first times of delayed jobs: of those with a named time, and of those with `delayMs`. */
  nextDelayed(): Promise<NextDelayed>;
  /** How many delayed jobs there are. */
  delayedCount(): Promise<number>;
  /** In order of index. */
  results(job: JobId, options: ResultOptions): Promise<ResultPage>;
  /** Counts of tasks by result, in cells of `cellSize` neighbours. Cells without results are left out. In order. */
  endCounts(job: JobId, range: Range, cellSize: number): Promise<readonly EndCounts[]>;
  /** The usage of these tasks, by step. Reads all of their results. */
  usage(job: JobId, range: Range): Promise<readonly TaskUsage[]>;
  /** The attempts of a task that were not its last. */
  earlierAttempts(job: JobId, index: TaskIndex): Promise<readonly TaskResult[]>;
  /** The entries of tasks first..last, in order. */
  entries(job: JobId, range: Range): Promise<Entries>;
  /** Output of an attempt; by default of the latest attempt that has any. */
  output(job: JobId, index: TaskIndex, options: OutputOptions): Promise<OutputPage>;
  /** How much output is stored of attempts that have not ended. */
  storedOutputBytes(tasks: readonly { job: JobId; index: TaskIndex; attempt: Attempt }[]): Promise<readonly number[]>;
  /** All texts of a bucket, in order of the keys' bytes. */
  keyValues(bucket: string): Promise<readonly KeyValue[]>;
  /** By name, or in order of the next run if `due`. */
  schedules(query: ScheduleQuery): Promise<SchedulePage>;
  /** About how many bytes the store uses. */
  bytesUsed(): Promise<number>;
  close(): Promise<void>;
}
