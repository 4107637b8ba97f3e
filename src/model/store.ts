/**
 * The durable state, and how a broker changes it. Both engines implement this; no type of a connection or transaction is visible.
 *
 * A task of a job is in exactly one place:
 * - beyond the job's cursor: never granted to any broker;
 * - in one task range and without a result: waiting at the broker that owns the range (no worker), or claimed by a worker;
 * - recorded: it has a result row, or it lies in the job's `cancels` and in no task range.
 *
 * A broker is identified by its epoch, a number that rises with every start of a broker on this store. A task range belongs to one
 * epoch, and every change to it is conditional on (task range, epoch). Where that finds no row the result is `lost`, and the broker
 * drops the range. Adoption gives a worker's task ranges to another epoch, so that the writes of the former owner are lost.
 *
 * Writes come in batches. A batch is one transaction: durable as a whole when the promise resolves, in the order given.
 */
import type { Attempt, JobId, TaskIndex, TaskRangeId, WorkerId } from "./ids.js";
import type { Counters, Entries, Job, JobEnd, JobSpec } from "./job.js";
import type { OutputStream, TaskEnd, TaskResult } from "./outcome.js";
import type { Range, Ranges } from "./ranges.js";
import type { Group } from "./store-group.js";

/** A range of tasks of one job with one history. Its id is chosen by the broker and never used twice on one store. */
export interface TaskRange extends Range {
  readonly id: TaskRangeId;
  readonly job: JobId;
  /** The number of the last hand-out of these tasks; 0 if there was none. */
  readonly attempt: Attempt;
  /** How often these tasks have failed, against the job's retries. */
  readonly failures: number;
  /** How many workers were lost with them, against the crash limit. */
  readonly crashes: number;
  /** Not to be handed out before this time (ms since 1970): backoff. 0 for at once. */
  readonly notBefore: number;
  /** The worker where they last failed: another is preferred, where there is one. */
  readonly avoid?: WorkerId;
  /** The worker that has them; absent while they wait. */
  readonly worker?: WorkerId;
}

/** No retry waits longer. A released range whose time is further away counts as due: a clock was set back. */
export const MAX_BACKOFF_MS = 60_000;

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

/** A run of entries as it is stored, see store/entry-chunks.ts. */
export interface EntryChunk extends Range {
  readonly bytes: Uint8Array;
}

export interface PackedEntries {
  readonly chunks: readonly EntryChunk[];
}

export type Write =
  /**
   * A new job; the first `lease` tasks are granted to the submitting broker as task range `rangeId`. Where a job has the same
   * `idempotencyKey`, nothing is made and the result is `duplicate`.
   */
  | {
      readonly op: "submit";
      /** A number that this broker may give, see `RecoveredState.nextJob`; without one the store gives the next. */
      readonly id?: JobId;
      readonly job: JobSpec;
      readonly entries?: Entries | PackedEntries;
      readonly lease: number;
      readonly rangeId: TaskRangeId;
    }
  /**
   * Grant up to `max` tasks of a job: first released ranges that are due, in task order and with their ids; then from the cursor,
   * as `rangeId`. Of a released range that is too large the first part is granted as `rangeId`.
   */
  | { readonly op: "lease"; readonly job: JobId; readonly max: number; readonly rangeId: TaskRangeId }
  /**
   * Hand [first, last], at either end of the waiting range `from` or all of it, to a worker as the new range `rangeId`, which has
   * the history of `from`. What is left stays `from`.
   */
  | {
      readonly op: "claim";
      readonly from: TaskRangeId;
      readonly rangeId: TaskRangeId;
      readonly first: number;
      readonly last: number;
      readonly attempt: Attempt;
      readonly worker: WorkerId;
    }
  /**
   * Record results of tasks in `rangeId`; `empty` says that no task is left in it, and it is deleted. A task among the job's
   * cancels is recorded as cancelled, whatever its result says: the broker may not know of the cancel yet.
   */
  | {
      readonly op: "settle";
      readonly job: JobId;
      readonly rangeId: TaskRangeId;
      readonly results: readonly TaskResult[];
      readonly empty: boolean;
    }
  /**
   * Replace `rangeId` by `replacements`: tasks that wait again, tasks that stay with the worker. `earlierAttempts` are the results of
   * attempts that are not the task's last; `cancelled` counts the tasks that leave unrun because of a cancel. The tasks of `rangeId`
   * that are in no replacement must have a result or be among `cancelled`.
   */
  | {
      readonly op: "replace";
      readonly job: JobId;
      readonly rangeId: TaskRangeId;
      readonly replacements: readonly TaskRange[];
      readonly earlierAttempts: readonly TaskResult[];
      readonly cancelled: number;
    }
  /** Release a waiting range for any broker to lease. Cancelled tasks at its ends leave it, and are counted. */
  | { readonly op: "release"; readonly rangeId: TaskRangeId }
  /** Take over whatever a worker has claimed through other brokers. */
  | { readonly op: "adopt"; readonly worker: WorkerId }
  | { readonly op: "hold"; readonly job: JobId; readonly held: boolean }
  /**
   * Add to the job's cancels, unless it has ended. Once all that lies beyond the cursor is among them, it is counted as
   * cancelled at once and the cursor moves to the end. So are cancelled tasks at the ends of released ranges. `unclaimed`: tasks
   * in ranges that a worker has are left alone.
   */
  | {
      readonly op: "cancel";
      readonly job: JobId;
      readonly ranges: Ranges;
      readonly reason?: string;
      readonly unclaimed?: boolean;
    }
  /**
   * Let finished tasks run again: their results become earlier attempts, the counters are reduced, and a job that had ended is open.
   * `ends` names the ends that count, within `ranges` or the whole job; tasks that never ran because they were cancelled count as
   * cancelled. They are no longer among the cancels (the reason is removed with the last of these). They wait as task ranges of this
   * broker, without failures and crashes: one range for each run of neighbours with the same attempt, which is the last of which
   * anything is stored, or 0. `rangeId` is the id of the first range; the others get the ids after it. A task whose range still
   * holds running tasks is left as it is: its worker may send its result again.
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
  /** Forget a job that has ended, with all that belongs to it. One that has not is left alone. */
  | { readonly op: "remove"; readonly job: JobId }
  /**
   * Store a small text under a key: the config pushed to workers, their standing, the tokens of a group. `null` deletes it. With
   * `version` only where that is the current version, 0 for none; each change raises it by one.
   */
  | {
      readonly op: "put";
      readonly bucket: string;
      readonly key: string;
      readonly value: string | null;
      readonly version?: number;
    }
  /**
   * Bytes of output, synced before anything in this batch is committed; none comes after its attempt's end, and none of an attempt
   * whose result has its `output`.
   */
  | { readonly op: "output"; readonly chunks: readonly OutputChunk[] };

/** Where a job stands after a write that may have ended it. */
export interface Progress {
  readonly counters: Counters;
  readonly ended?: JobEnd;
}

/**
 * One per write, in order. `lost`: the task range does not belong to this epoch any more; nothing was changed. `mayLease`: another
 * lease of this job would grant something now.
 */
export type WriteResult =
  | { readonly op: "submit"; readonly job: Job; readonly taskRange?: TaskRange }
  /** Of a submit: the job that was made before. */
  | { readonly op: "duplicate"; readonly job: JobId }
  | { readonly op: "lease"; readonly job: JobId; readonly taskRanges: readonly TaskRange[]; readonly mayLease: boolean }
  /** With the tasks' entries, where the job has any. */
  | { readonly op: "claim"; readonly lost: boolean; readonly entries?: Entries }
  | { readonly op: "settle"; readonly lost: boolean; readonly progress?: Progress }
  | { readonly op: "replace"; readonly lost: boolean; readonly progress?: Progress }
  | { readonly op: "release"; readonly lost: boolean; readonly job?: JobId; readonly progress?: Progress }
  | { readonly op: "adopt"; readonly taskRanges: readonly ClaimedRange[] }
  | { readonly op: "hold"; readonly found: boolean }
  | { readonly op: "cancel"; readonly progress?: Progress }
  /**
   * `job` as it is now; absent where there is none. `count` tasks run again. `refused` says why nothing was changed: an error for
   * the caller (LABORO_BAD_INPUT). The batch is not rolled back for it, because it contains other writes.
   */
  | {
      readonly op: "rerun";
      readonly job?: Job;
      readonly taskRanges: readonly TaskRange[];
      readonly count: number;
      readonly refused?: string;
    }
  | { readonly op: "remove"; readonly removed: boolean }
  /** `version` is the current one: the new one where the text was stored, 0 where there is none. */
  | { readonly op: "put"; readonly stored: boolean; readonly version: number }
  | { readonly op: "output" };

/** A task range with those of its tasks that have a result already. */
export interface ClaimedRange {
  readonly taskRange: TaskRange;
  readonly settled: Ranges;
}

/** What a broker recovers when it opens the store. */
export interface RecoveredState {
  /** Random, made with the store. One for a group. */
  readonly identity: string;
  readonly epoch: Epoch;
  /**
   * Only where one broker has the store to itself: it may number new jobs from here on. Then decisions about a new job can be in the
   * same batch as its submission.
   */
  readonly nextJob?: JobId;
  /** Every job that has not ended. */
  readonly jobs: readonly Job[];
  readonly taskRanges: readonly ClaimedRange[];
}

/** What a worker remembers of the store that it last worked for. */
export interface RememberedStore {
  readonly identity: string;
  readonly epoch: Epoch;
  /** The highest job of which it had tasks; 0 for none. */
  readonly job: JobId;
  readonly acceptedBy?: string | undefined;
}

export interface ResultPage {
  readonly results: readonly TaskResult[];
  /** Give this as `from` for the next page; absent on the last one. */
  readonly next?: TaskIndex;
}

export interface JobPage {
  readonly jobs: readonly Job[];
  readonly next?: JobId;
}

/** Which output to read. */
export interface OutputOptions {
  /** The latest attempt with any output if absent. */
  readonly attempt?: Attempt;
  readonly from: number;
  /** At most this many bytes of output. */
  readonly limit: number;
  readonly stream?: OutputStream;
}

export interface OutputPiece {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly bytes: Uint8Array;
}

export interface OutputPage {
  /** In order of offset; a jump between pieces is a gap: dropped past the cap, or damaged on disk. */
  readonly pieces: readonly OutputPiece[];
  /** Where the next page begins, while there is more. */
  readonly next?: number;
}

/** A small text and its key. */
export interface KeyValue {
  readonly key: string;
  readonly value: string;
  readonly version: number;
  /** When, by the clock of the broker that wrote it. */
  readonly updatedAt: number;
}

/** How many tasks of one cell ended how. Cells are numbered from the first task that was asked for. */
export interface EndCounts {
  readonly cell: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
}

/** Which jobs to list; all that is given must hold. */
export interface JobFilter {
  /** Not ended, or ended in one of these ways; none of them, no job. */
  readonly states?: readonly ("open" | JobEnd)[];
  /** The whole name; `*` stands for any text, every other character for itself. */
  readonly name?: string;
  readonly pool?: string;
  readonly key?: string;
  readonly idempotencyKey?: string;
  readonly createdFrom?: number;
  readonly createdBefore?: number;
  /** One that has not ended is not among them. */
  readonly endedBefore?: number;
}

/** Which results to list; all that is given must hold. */
export interface ResultFilter {
  readonly states?: readonly TaskEnd[];
  readonly worker?: string;
}

export interface ResultOptions {
  readonly from: TaskIndex;
  readonly limit: number;
  readonly filter?: ResultFilter;
  /** With `output`, where it is stored with the result. */
  readonly withOutput?: boolean;
}

export interface Store {
  /** Where brokers share it. */
  readonly group?: Group;
  /** True where other brokers may work on the same store: then workers' claims are adopted on JOIN. */
  readonly shared: boolean;
  /** Takes a new epoch, owns what this broker left behind, and returns the open state. Called once. */
  open(now: number): Promise<RecoveredState>;
  /**
   * One transaction, one fsync. Batches given while one is under way follow in order. Where it rejects it has changed nothing: with
   * LABORO_DISK_FULL and LABORO_STORE_UNAVAILABLE the same batch can be given again; LABORO_INTERNAL is an invalid batch, such as one
   * with the same task range id twice. LABORO_LEASE_LOST is the end of this epoch: also where the connection broke during a batch and
   * it can no longer be found out whether it was committed.
   */
  commit(writes: readonly Write[], now: number): Promise<readonly WriteResult[]>;
  job(id: JobId): Promise<Job | undefined>;
  /** Newest first; `before` pages on. */
  jobs(options: { readonly before?: JobId; readonly limit: number; readonly filter?: JobFilter }): Promise<JobPage>;
  /** In order. */
  results(job: JobId, options: ResultOptions): Promise<ResultPage>;
  /** How many of these tasks have which result, in cells of `cellSize` neighbours; cells without any are left out. In order. */
  endCounts(job: JobId, range: Range, cellSize: number): Promise<readonly EndCounts[]>;
  /** The attempts of a task that were not its last. */
  earlierAttempts(job: JobId, index: TaskIndex): Promise<readonly TaskResult[]>;
  /** The entries of tasks first..last, in order. */
  entries(job: JobId, range: Range): Promise<Entries>;
  /** Output of an attempt, the latest with any if none is named. */
  output(job: JobId, index: TaskIndex, options: OutputOptions): Promise<OutputPage>;
  /** How much output is stored of attempts that have not ended. */
  storedOutputBytes(tasks: readonly { job: JobId; index: TaskIndex; attempt: Attempt }[]): Promise<readonly number[]>;
  /** All texts of a bucket, in order of the keys' bytes. */
  keyValues(bucket: string): Promise<readonly KeyValue[]>;
  /** About how many bytes the store uses. */
  bytesUsed(): Promise<number>;
  close(): Promise<void>;
}
