/**
 * What must survive, and how a broker changes it. Both engines implement this; nothing of a connection or
 * transaction type comes through.
 *
 * A task of a job is in exactly one place:
 * - beyond the job's cursor: never granted to anyone;
 * - in one parcel and without a result: waiting at the broker that owns the parcel (no worker), or claimed by a worker;
 * - recorded: it has a result row, or it lies in the job's `cancels` and in no parcel.
 *
 * A broker is known by its epoch, a number that rises with every start of a broker on this store. A parcel belongs to one
 * epoch, and every change to a parcel is conditional on (parcel, epoch): where that finds nothing the answer is
 * `lost`, and the broker drops what it thought it had. Adoption gives a worker's parcels to another epoch, which is what
 * makes the former owner's writes miss.
 *
 * Writes come in batches. A batch is one transaction: durable as a whole when the promise resolves, in the order given.
 */
import type { Attempt, JobId, TaskRangeId, TaskIndex, WorkerId } from "./ids.js";
import type { Counters, Entries, Job, JobEnd, JobSpec } from "./job.js";
import type { OutputStream, TaskEnd, TaskResult } from "./outcome.js";
import type { Range, Ranges } from "./ranges.js";

/** A stretch of tasks of one job with one history. Its id is chosen by the broker and never used twice on one store. */
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
  /** The worker at which they last failed: another is better, where there is one. */
  readonly avoid?: WorkerId;
  /** Who has them; absent while they wait. */
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

export type Write =
  /** A new job; the first `lease` tasks are granted to the submitting broker as `parcel`. */
  | {
      readonly op: "submit";
      /** A number that this broker may give, see `Held.nextJob`; without one the store gives the next. */
      readonly id?: JobId;
      readonly job: JobSpec;
      readonly entries?: Entries;
      readonly lease: number;
      readonly rangeId: TaskRangeId;
    }
  /**
   * Grant up to `most` tasks of a job: given-back parcels that are due first, in task order and with their ids; then from
   * the cursor, as `parcel`. Of a given-back parcel that is too large the first part is granted as `parcel`.
   */
  | { readonly op: "lease"; readonly job: JobId; readonly max: number; readonly rangeId: TaskRangeId }
  /**
   * Hand [first, last], at either end of the waiting parcel `from` or all of it, to a worker as the new parcel `parcel`,
   * which has the history of `from`. What is left stays `from`.
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
   * Record results of tasks in `parcel`; `empty` says that none is left in it, and it goes. A task among the job's
   * cancels is recorded as cancelled, whatever its result says: the broker may not have heard of the cancel.
   */
  | {
      readonly op: "settle";
      readonly job: JobId;
      readonly rangeId: TaskRangeId;
      readonly results: readonly TaskResult[];
      readonly empty: boolean;
    }
  /**
   * Put `pieces` in the place of `parcel`: tasks that go back to wait, tasks that stay with the worker. `earlier` are the ends
   * of attempts that are not the task's last; `cancelled` counts the tasks that leave unrun because of a cancel.
   * The tasks of `parcel` that are in no piece must have a result or be among `cancelled`.
   */
  | {
      readonly op: "replace";
      readonly job: JobId;
      readonly rangeId: TaskRangeId;
      readonly replacements: readonly TaskRange[];
      readonly earlierAttempts: readonly TaskResult[];
      readonly cancelled: number;
    }
  /** Give a waiting parcel back for any broker to lease. Cancelled tasks at its ends leave, and are counted. */
  | { readonly op: "release"; readonly rangeId: TaskRangeId }
  /** Take over whatever a worker has claimed through other brokers. */
  | { readonly op: "adopt"; readonly worker: WorkerId }
  | { readonly op: "hold"; readonly job: JobId; readonly held: boolean }
  /**
   * Add to the job's cancels, unless it has ended. Once all that lies beyond the cursor is among them, it is counted as
   * cancelled at once and the cursor moves to the end. So are cancelled tasks at the ends of parcels that nobody owns.
   */
  | { readonly op: "cancel"; readonly job: JobId; readonly ranges: Ranges; readonly reason?: string }
  /**
   * Let finished tasks run again: their results become earlier attempts, the counters go back, and a job that had ended is
   * open. `ends` names the ends that count, within `ranges` or the whole job; what never ran because it was cancelled counts
   * as cancelled. They are no longer among the cancels (with the last of these goes the reason), and wait as parcels of this broker:
   * one a run of neighbours with the same attempt, which is the last of which anything is kept, or 0; no failures and no
   * crashes. `parcel` names the first, the numbers after it are free for the others. A task whose parcel still holds others
   * that run is left as it is: its worker may yet send its result again.
   */
  | {
      readonly op: "rerun";
      readonly job: JobId;
      readonly ends: readonly TaskEnd[];
      readonly ranges?: Ranges;
      readonly rangeId: TaskRangeId;
      /** How many parcel names are free from `parcel` on; more pieces than that are refused. */
      readonly idCount: number;
    }
  /** Forget a job that has ended, with all that belongs to it. One that has not is left alone. */
  | { readonly op: "remove"; readonly job: JobId }
  /**
   * Keep a small text under a key, for things that are no work: what workers are told, how they have behaved, who was let in. `null`
   * forgets it. With `version` only where that is the version there is now, 0 for none; each change raises it by one.
   */
  | {
      readonly op: "keep";
      readonly bucket: string;
      readonly key: string;
      readonly value: string | null;
      readonly version?: number;
    }
  /** Bytes of output, synced before anything in this batch is committed; none comes after its attempt's end. */
  | { readonly op: "output"; readonly chunks: readonly OutputChunk[] };

/** Where a job stands after a write that may have ended it. */
export interface Progress {
  readonly counters: Counters;
  readonly ended?: JobEnd;
}

/**
 * One a write, in order. `lost`: the parcel is no longer this epoch's; nothing was changed. `more`: another lease of this
 * job would grant something now.
 */
export type WriteResult =
  | { readonly op: "submit"; readonly job: Job; readonly taskRange?: TaskRange }
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
   * `job` as it is now; absent where there is none. `count` tasks run again. `refused` says why nothing was changed: a matter for
   * the one who asked (LABORO_BAD_INPUT), and no reason to undo the batch, which has others' writes in it.
   */
  | {
      readonly op: "rerun";
      readonly job?: Job;
      readonly taskRanges: readonly TaskRange[];
      readonly count: number;
      readonly refused?: string;
    }
  | { readonly op: "remove"; readonly removed: boolean }
  /** `version` is the one there is now: the new one where it was kept, 0 where there is none. */
  | { readonly op: "keep"; readonly stored: boolean; readonly version: number }
  | { readonly op: "output" };

/** A parcel with the tasks in it that have a result already. */
export interface ClaimedRange {
  readonly taskRange: TaskRange;
  readonly settled: Ranges;
}

/** What a broker needs to know when it opens its doors. */
export interface RecoveredState {
  readonly epoch: Epoch;
  /**
   * Where one broker has the store to itself: it may number jobs from here on. Then what is decided about a new job can stand in
   * the same batch as its submission.
   */
  readonly nextJob?: JobId;
  /** Every job that has not ended. */
  readonly jobs: readonly Job[];
  readonly taskRanges: readonly ClaimedRange[];
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

/** A broker of the group, as the others see it. Times are the store's. */
export interface Member {
  readonly epoch: Epoch;
  /** What it says of itself: JSON. */
  readonly info: string;
  readonly started: number;
  readonly lastHeartbeat: number;
  /** Its lease runs: what it owns is its own. */
  readonly alive: boolean;
}

/** An open job at a glance, for who wants to know whether there is anything new about it. */
export interface JobSummary {
  readonly job: JobId;
  /** Another text whenever its hold, its cancels or its end have changed; perhaps also where they have not. */
  readonly changeMark: string;
  readonly counters: Counters;
  /** A lease would grant something now. */
  readonly mayLease: boolean;
}

/**
 * What a store that brokers share knows of them. A broker's lease is renewed by its heartbeat; while it runs, nobody takes what the
 * broker owns. Once it has ended and was noticed (`reap`), every write of that epoch is refused with LABORO_LEASE_LOST, and the broker
 * opens anew. A store that cannot be reached rejects everything with LABORO_STORE_UNAVAILABLE.
 */
export interface Group {
  /**
   * Renews the lease for `leaseMs` from now, by the store's clock; one that has ended too, as long as nobody has noticed. Rejects with
   * LABORO_LEASE_LOST where somebody has. Does not wait behind commits: the lease of a busy broker must not end for that.
   */
  heartbeat(info: string, leaseMs: number): Promise<void>;
  /** Living ones, and dead ones whose workers still hold claims. In order of the epochs. */
  members(): Promise<readonly Member[]>;
  /**
   * Ends brokers whose lease has run out: what waited there can be leased by anyone from now on. Gives every dead epoch of which workers
   * still hold claims, whoever noticed its death first and how ever often it is asked: the broker that asked may die itself.
   */
  reap(now: number): Promise<readonly Epoch[]>;
  /** What workers still hold of a dead broker is this broker's now. Each parcel is given to one broker only. */
  takeOverClaims(dead: Epoch): Promise<readonly ClaimedRange[]>;
  /** Every open job, in order of their numbers. Cheap: asked every second or so. */
  jobSummaries(): Promise<readonly JobSummary[]>;
  /**
   * Told what others changed: a job was added, held, cancelled, run again, given back, ended, removed; or a text was kept. Only a hint: some
   * are missed, and one's own may come back.
   */
  listen(onHint: (hint: { readonly job?: JobId; readonly bucket?: string }) => void): void;
  /** This broker goes: its lease ends now, and what waits here is anybody's. Nothing is written afterwards. */
  leave(): Promise<void>;
}

export interface Store {
  /** Where brokers share it. */
  readonly group?: Group;
  /** True where other brokers may work on the same store: then workers' claims are adopted on JOIN. */
  readonly shared: boolean;
  /** So many milliseconds results that nobody waits for may gather, to be one commit; none if absent. */
  readonly commitDelayMs?: number;
  /** Begin: take a new epoch, own what this broker left behind, and say what there is. Called once. */
  open(now: number): Promise<RecoveredState>;
  /**
   * One transaction, one fsync. Batches given while one is under way follow in order. Where it rejects it has changed nothing: with
   * LABORO_DISK_FULL and LABORO_STORE_UNAVAILABLE the same batch can be given again; LABORO_INTERNAL is a batch that no right broker
   * gives, such as a parcel id twice. LABORO_LEASE_LOST is the end of this epoch: also where the connection broke under a batch and
   * whether it was committed can no longer be found out.
   */
  commit(writes: readonly Write[], now: number): Promise<readonly WriteResult[]>;
  job(id: JobId): Promise<Job | undefined>;
  /** Newest first; `before` pages on. */
  jobs(options: { readonly before?: JobId; readonly limit: number; readonly filter?: JobFilter }): Promise<JobPage>;
  results(
    job: JobId,
    options: { readonly from: TaskIndex; readonly limit: number; readonly filter?: ResultFilter },
  ): Promise<ResultPage>;
  /** How many of these tasks have which result, in cells of `per` neighbours; cells without any are left out. In order. */
  endCounts(job: JobId, range: Range, cellSize: number): Promise<readonly EndCounts[]>;
  /** The attempts of a task that were not its last. */
  earlierAttempts(job: JobId, index: TaskIndex): Promise<readonly TaskResult[]>;
  /** The entries of tasks first..last, in order. */
  entries(job: JobId, range: Range): Promise<Entries>;
  /** Output of an attempt, the latest with any if none is named. */
  output(
    job: JobId,
    index: TaskIndex,
    options: {
      readonly attempt?: Attempt;
      readonly from: number;
      readonly limit: number;
      readonly stream?: OutputStream;
    },
  ): Promise<OutputPage>;
  /** How much output is stored of attempts that have not ended. */
  storedOutputBytes(tasks: readonly { job: JobId; index: TaskIndex; attempt: Attempt }[]): Promise<readonly number[]>;
  /** All that is kept in an area, in order of the keys' bytes. */
  keyValues(bucket: string): Promise<readonly KeyValue[]>;
  /** About how much room all of it takes. */
  bytesUsed(): Promise<number>;
  close(): Promise<void>;
}
