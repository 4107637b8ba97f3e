/**
 * What passes between the broker's event loop and the database's thread. Everything here is plain data, cheap to clone;
 * the writes and results that come by the thousand are sent as numbers (pack-writes.ts, pack-write-results.ts).
 */
import type { ErrorCode } from "../../base/errors.js";
import type { Attempt, JobId, TaskIndex, TaskRangeId } from "../../model/ids.js";
import type { IfExists, JobEnd } from "../../model/job.js";
import type { LimitStart } from "../../model/limit.js";
import type { TaskResult } from "../../model/outcome.js";
import type { Range } from "../../model/ranges.js";
import type { ScheduleQuery } from "../../model/schedule.js";
import type {
  ClaimedRange,
  EndCounts,
  EntryChunk,
  Epoch,
  JobFilter,
  JobUsage,
  KeyValue,
  NextDelayed,
  OutputOptions,
  OutputPage,
  Progress,
  ResultOptions,
  TaskRange,
  Write,
  WriteResult,
} from "../../model/store.js";
import type { ScheduleRow } from "../schedule-rows.js";
import type { PackedWriteResults } from "./pack-write-results.js";
import type { PackedWrites } from "./pack-writes.js";

/** A submission; what the thread need not read is encoded already. */
export interface SubmitRow {
  readonly op: "submit";
  readonly id?: JobId;
  readonly spec: Uint8Array;
  readonly name: string;
  readonly pool: string;
  readonly batchKey: string | null;
  readonly idempotencyKey: string | null;
  readonly key: string | null;
  readonly keyForMs: number | null;
  readonly ifExists: IfExists;
  readonly notBefore: number | null;
  readonly relative: boolean;
  readonly keepMs: number | null;
  readonly keepFailedMs: number | null;
  readonly count: number;
  readonly held: boolean;
  readonly chunks?: readonly EntryChunk[];
  readonly lease: number;
  readonly rangeId: TaskRangeId;
}

export interface SubmittedRow {
  readonly op: "submit";
  readonly id: JobId;
  readonly taskRange?: TaskRange;
  readonly replaced?: { readonly job: JobId; readonly progress?: Progress };
}

export interface PromotedRow {
  readonly op: "promote";
  readonly jobs: readonly JobRow[];
}

export type RerunRow = Omit<Extract<WriteResult, { op: "rerun" }>, "job"> & { readonly job?: JobRow };

/** A change of a schedule; without `spec` that stays. */
export interface ScheduleChangeRow {
  readonly name: string;
  readonly expected: number;
  readonly next?: Pick<ScheduleRow, "revision" | "nextAt" | "state"> & { readonly spec: Uint8Array | null };
  readonly writes: readonly (SubmitRow | Extract<Write, { op: "cancel" }>)[];
}

export interface ScheduleResultRow {
  readonly op: "schedule";
  readonly changes: readonly { readonly changed: boolean; readonly results: readonly WriteResultRow[] }[];
}

export interface ScheduleRows {
  readonly rows: readonly ScheduleRow[];
  readonly earliest: number | null;
}

export type WriteRow =
  | Exclude<Write, { op: "submit" | "schedule" }>
  | SubmitRow
  | { readonly op: "schedule"; readonly changes: readonly ScheduleChangeRow[] };
export type WriteResultRow =
  | Exclude<WriteResult, { op: "submit" | "rerun" | "schedule" | "promote" }>
  | SubmittedRow
  | RerunRow
  | ScheduleResultRow
  | PromotedRow;

/** A job as its row has it; the spec is decoded in the main thread. */
export interface JobRow {
  readonly id: JobId;
  readonly created: number;
  readonly spec: Uint8Array;
  readonly hasEntries: number;
  readonly held: number;
  readonly cursor: number;
  readonly cancels: string;
  readonly reason: string | null;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly endedAt: number | null;
  readonly endedState: JobEnd | null;
  readonly notBefore: number | null;
}

export interface RecoveredRows {
  readonly identity: string;
  readonly epoch: Epoch;
  readonly nextJob: JobId;
  readonly jobs: readonly JobRow[];
  readonly taskRanges: readonly ClaimedRange[];
  readonly limitStarts: readonly LimitStart[];
}

/** Takes messages for the operator, such as damaged output; with a code where acknowledged data is missing. */
export type StoreLog = (line: string, code?: ErrorCode) => void;

export interface TaskAttempt {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

/** Every call of the thread, with its arguments and its result. */
export interface Calls {
  open: { args: { dir: string; now: number }; result: RecoveredRows };
  commit: { args: { writes: PackedWrites; now: number }; result: PackedWriteResults };
  job: { args: { id: JobId }; result: JobRow | undefined };
  jobs: { args: { before?: JobId; limit: number; filter?: JobFilter }; result: JobRow[] };
  expiredJobs: {
    args: { now: number; keep: { keepMs?: number; keepFailedMs?: number }; limit: number };
    result: JobId[];
  };
  nextDelayed: { args: Record<never, never>; result: NextDelayed };
  results: { args: { job: JobId } & ResultOptions; result: TaskResult[] };
  usage: { args: { job: JobId }; result: JobUsage };
  endCounts: { args: { job: JobId; range: Range; cellSize: number }; result: EndCounts[] };
  earlierAttempts: { args: { job: JobId; index: TaskIndex }; result: TaskResult[] };
  entries: { args: { job: JobId; range: Range }; result: EntryChunk[] };
  output: {
    args: { job: JobId; index: TaskIndex; options: OutputOptions };
    result: OutputPage;
  };
  storedOutputBytes: { args: { tasks: readonly TaskAttempt[] }; result: number[] };
  keyValues: { args: { bucket: string }; result: KeyValue[] };
  schedules: { args: { query: ScheduleQuery; now: number }; result: ScheduleRows };
  bytesUsed: { args: Record<never, never>; result: number };
  close: { args: Record<never, never>; result: undefined };
}

export type CallName = keyof Calls;

export type ThreadRequest = { [Name in CallName]: { id: number; call: Name; args: Calls[Name]["args"] } }[CallName];

export type ThreadReply =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: { readonly code: ErrorCode; readonly message: string } }
  /** Not a reply: a message for the operator, with a code where it is an error. */
  | { readonly log: string; readonly code?: ErrorCode };
