/**
 * The broker's end of the database's thread: calls out, replies in. Every call gets its reply. If the thread dies, all
 * waiting and later calls are refused with LABORO_STORE_FAILED.
 *
 * What passes between the broker's event loop and the database's thread. Everything here is plain data, cheap to clone;
 * the writes and results that come by the thousand are sent as numbers (pack-writes.ts).
 */
import { Worker } from "node:worker_threads";
import { type ErrorCode, LaboroError } from "../../base/errors.js";
import { threadFile } from "../../base/package.js";
import type { Attempt, JobId, TaskIndex, TaskRangeId } from "../../model/ids.js";
import type { IfExists, JobEnd } from "../../model/job.js";
import type { LimitStart } from "../../model/limit.js";
import type { ClaimedRange, EntryChunk, Epoch, Progress, Write, WriteResult } from "../../model/store.js";
import type { JobColumns } from "../job-rows.js";
import type { ScheduleRow } from "../rows.js";
import type { Calls } from "./thread.js";

/** A submission. Parts that the thread need not read are encoded already. */
export interface SubmitRow {
  readonly op: "submit";
  readonly id?: JobId | undefined;
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
  readonly open: boolean;
  readonly held: boolean;
  readonly chunks?: readonly EntryChunk[] | undefined;
  readonly lease: number;
  readonly rangeId: TaskRangeId;
}

export interface SubmittedRow {
  readonly op: "submit";
  readonly id: JobId;
  /** The first tasks are granted: the range that the write has named. */
  readonly granted: number;
  readonly replaced?: { readonly job: JobId; readonly progress?: Progress };
}

interface PromotedRow {
  readonly op: "promote";
  readonly jobs: readonly JobRow[];
}

type Edit = Extract<Write, { op: "edit" }>;
type Append = Omit<NonNullable<Edit["append"]>, "entries"> & { readonly chunks?: readonly EntryChunk[] };
export type EditRow = Omit<Edit, "append"> & { readonly append?: Append };
export type EditedRow = Omit<Extract<WriteResult, { op: "edit" }>, "job"> & { readonly job?: JobRow };
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
  | Exclude<Write, { op: "submit" | "schedule" | "edit" }>
  | SubmitRow
  | EditRow
  | { readonly op: "schedule"; readonly changes: readonly ScheduleChangeRow[] };
export type WriteResultRow =
  | Exclude<WriteResult, { op: "submit" | "rerun" | "edit" | "schedule" | "promote" }>
  | SubmittedRow
  | RerunRow
  | EditedRow
  | ScheduleResultRow
  | PromotedRow;

/** The spec is decoded in the main thread. */
export type JobRow = JobColumns<number, JobEnd>;

export interface RecoveredRows {
  readonly identity: string;
  readonly epoch: Epoch;
  readonly nextJob: JobId;
  readonly jobs: readonly JobRow[];
  readonly taskRanges: readonly ClaimedRange[];
  readonly limitStarts: readonly LimitStart[];
}

/** Takes messages for the operator, such as damaged output; with a code if acknowledged data is missing. */
export type StoreLog = (line: string, code?: ErrorCode) => void;

export interface TaskAttempt {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

export type ThreadReply =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: { readonly code: ErrorCode; readonly message: string } }
  /** Not a reply: a message for the operator, with a code if it is an error. */
  | { readonly log: string; readonly code?: ErrorCode };

interface PendingCall {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: LaboroError) => void;
}

let early: ThreadCalls | undefined;

export class ThreadCalls {
  readonly #worker: Worker;
  readonly #pending = new Map<number, PendingCall>();
  #count = 0;
  #failure: LaboroError | undefined;
  #log: StoreLog;

  constructor(log: StoreLog, file: URL = threadFile("thread.js", import.meta.url)) {
    this.#log = log;
    this.#worker = new Worker(file, { name: "laboro-store" });
    this.#worker.on("message", (reply: ThreadReply) => {
      if ("log" in reply) this.#log(reply.log, reply.code);
      else this.#settle(reply);
    });
    this.#worker.on("error", (cause) => this.#refuseAll(`its thread failed: ${cause.message}`, cause));
    this.#worker.on("exit", (code) => this.#refuseAll(`its thread has ended (${code})`));
  }

  /** Starts the thread of the next store early: it loads its code meanwhile. It does not keep the process alive. */
  static startEarly(): void {
    if (early !== undefined) return;
    early = new ThreadCalls(() => {});
    early.#worker.unref();
  }

  /** The thread that was started early, or a new one. */
  static start(log: StoreLog): ThreadCalls {
    const calls = early ?? new ThreadCalls(log);
    early = undefined;
    calls.#log = log;
    calls.#worker.ref();
    return calls;
  }

  call<Name extends keyof Calls>(
    call: Name,
    args: Calls[Name]["args"],
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<Calls[Name]["result"]> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const id = ++this.#count;
    return new Promise<Calls[Name]["result"]>((resolve, reject) => {
      // The thread answers each call with its type in Calls.
      this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject });
      this.#worker.postMessage({ id, call, args }, transfer);
    });
  }

  /** Ends the thread; calls without a reply are rejected. */
  async end(): Promise<void> {
    this.#refuseAll("it is closed");
    await this.#worker.terminate();
  }

  #settle(reply: Exclude<ThreadReply, { readonly log: string }>): void {
    const waiting = this.#pending.get(reply.id);
    if (waiting === undefined) return;
    this.#pending.delete(reply.id);
    if ("error" in reply) waiting.reject(new LaboroError(reply.error.code, reply.error.message));
    else waiting.resolve(reply.result);
  }

  #refuseAll(why: string, cause?: unknown): void {
    this.#failure ??= new LaboroError("LABORO_STORE_FAILED", `the store cannot answer: ${why}`, { cause });
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
  }
}
