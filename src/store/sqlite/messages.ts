/**
 * What passes between the broker's event loop and the database's thread. Everything here is plain data, cheap to clone;
 * the writes and results that come by the thousand are sent as numbers (pack-writes.ts, pack-write-results.ts).
 */
import type { ErrorCode } from "../../base/errors.js";
import type { Attempt, JobId, TaskIndex, TaskRangeId } from "../../model/ids.js";
import type { JobEnd } from "../../model/job.js";
import type { TaskResult } from "../../model/outcome.js";
import type { Range } from "../../model/ranges.js";
import type {
  ClaimedRange,
  EndCounts,
  EntryChunk,
  Epoch,
  JobFilter,
  KeyValue,
  OutputOptions,
  OutputPage,
  ResultOptions,
  TaskRange,
  Write,
  WriteResult,
} from "../../model/store.js";
import type { PackedWriteResults } from "./pack-write-results.js";
import type { PackedWrites } from "./pack-writes.js";

/** A submission; what the thread need not read is encoded already. */
export interface SubmitRow {
  readonly op: "submit";
  readonly id?: JobId;
  readonly spec: Uint8Array;
  readonly name: string;
  readonly pool: string;
  readonly key: string | null;
  readonly idempotencyKey: string | null;
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
}

export type RerunRow = Omit<Extract<WriteResult, { op: "rerun" }>, "job"> & { readonly job?: JobRow };

export type WriteRow = Exclude<Write, { op: "submit" }> | SubmitRow;
export type WriteResultRow = Exclude<WriteResult, { op: "submit" | "rerun" }> | SubmittedRow | RerunRow;

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
}

export interface RecoveredRows {
  readonly identity: string;
  readonly epoch: Epoch;
  readonly nextJob: JobId;
  readonly jobs: readonly JobRow[];
  readonly taskRanges: readonly ClaimedRange[];
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
  open: { args: { now: number }; result: RecoveredRows };
  commit: { args: { writes: PackedWrites; now: number }; result: PackedWriteResults };
  job: { args: { id: JobId }; result: JobRow | undefined };
  jobs: { args: { before?: JobId; limit: number; filter?: JobFilter }; result: JobRow[] };
  results: { args: { job: JobId } & ResultOptions; result: TaskResult[] };
  endCounts: { args: { job: JobId; range: Range; cellSize: number }; result: EndCounts[] };
  earlierAttempts: { args: { job: JobId; index: TaskIndex }; result: TaskResult[] };
  entries: { args: { job: JobId; range: Range }; result: EntryChunk[] };
  output: {
    args: { job: JobId; index: TaskIndex; options: OutputOptions };
    result: OutputPage;
  };
  storedOutputBytes: { args: { tasks: readonly TaskAttempt[] }; result: number[] };
  keyValues: { args: { bucket: string }; result: KeyValue[] };
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

export interface ThreadData {
  readonly dir: string;
  readonly relaxed: boolean;
}
