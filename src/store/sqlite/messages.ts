/**
 * What passes between the broker's event loop and the database's thread. Everything here is plain data, cheap to clone;
 * the writes and answers that come by the thousand travel as numbers (pack-writes.ts, pack-answers.ts).
 */
import type { ErrorCode } from "../../base/errors.js";
import type { Attempt, JobId, ParcelId, TaskIndex } from "../../model/ids.js";
import type { JobEnd } from "../../model/job.js";
import type { OutputStream, TaskResult } from "../../model/outcome.js";
import type { Range } from "../../model/ranges.js";
import type {
  Answer,
  EndCell,
  Epoch,
  HeldParcel,
  JobFilter,
  Kept,
  OutputPage,
  Parcel,
  ResultFilter,
  Write,
} from "../../model/store.js";
import type { EntryChunk } from "../entry-chunks.js";
import type { PackedAnswers } from "./pack-answers.js";
import type { PackedWrites } from "./pack-writes.js";

/** A submission with what the thread need not understand already encoded. */
export interface SubmitRow {
  readonly op: "submit";
  readonly id?: JobId;
  readonly request: Uint8Array;
  readonly name: string;
  readonly pool: string;
  readonly key: string | null;
  readonly count: number;
  readonly held: boolean;
  readonly chunks?: readonly EntryChunk[];
  readonly lease: number;
  readonly parcel: ParcelId;
}

export interface SubmittedRow {
  readonly op: "submit";
  readonly id: JobId;
  readonly parcel?: Parcel;
}

export type RerunRow = Omit<Extract<Answer, { op: "rerun" }>, "job"> & { readonly job?: JobRow };

export type WriteRow = Exclude<Write, { op: "submit" }> | SubmitRow;
export type AnswerRow = Exclude<Answer, { op: "submit" | "rerun" }> | SubmittedRow | RerunRow;

/** A job as its row has it; the request is decoded on the other side. */
export interface JobRow {
  readonly id: JobId;
  readonly created: number;
  readonly request: Uint8Array;
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

export interface HeldRows {
  readonly epoch: Epoch;
  readonly nextJob: JobId;
  readonly jobs: readonly JobRow[];
  readonly parcels: readonly HeldParcel[];
}

export interface TaskAttempt {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

/** Every call the thread answers: what is asked, what comes back. */
export interface Calls {
  open: { asks: Record<never, never>; gives: HeldRows };
  commit: { asks: { writes: PackedWrites; now: number }; gives: PackedAnswers };
  job: { asks: { id: JobId }; gives: JobRow | undefined };
  jobs: { asks: { before?: JobId; limit: number; filter?: JobFilter }; gives: JobRow[] };
  results: { asks: { job: JobId; from: TaskIndex; limit: number; filter?: ResultFilter }; gives: TaskResult[] };
  ends: { asks: { job: JobId; range: Range; per: number }; gives: EndCell[] };
  earlier: { asks: { job: JobId; index: TaskIndex }; gives: TaskResult[] };
  entries: { asks: { job: JobId; range: Range }; gives: EntryChunk[] };
  output: {
    asks: {
      job: JobId;
      index: TaskIndex;
      options: { attempt?: Attempt; from: number; limit: number; stream?: OutputStream };
    };
    gives: OutputPage;
  };
  outputEnds: { asks: { tasks: readonly TaskAttempt[] }; gives: number[] };
  kept: { asks: { area: string }; gives: Kept[] };
  bytes: { asks: Record<never, never>; gives: number };
  close: { asks: Record<never, never>; gives: undefined };
}

export type CallName = keyof Calls;

export type Request = { [Name in CallName]: { id: number; call: Name; asks: Calls[Name]["asks"] } }[CallName];

export type Reply =
  | { readonly id: number; readonly gives: unknown }
  | { readonly id: number; readonly error: { readonly code: ErrorCode; readonly message: string } }
  /** Not an answer: something a person should read. */
  | { readonly log: string };

export interface ThreadData {
  readonly dir: string;
  readonly relaxed: boolean;
}
