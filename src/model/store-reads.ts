/** What is read from the store: filters, options and pages. */
import type { Attempt, JobId, TaskIndex } from "./ids.js";
import type { Job, JobEnd } from "./job.js";
import type { OutputStream, TaskEnd, TaskResult } from "./outcome.js";

export interface ResultPage {
  readonly results: readonly TaskResult[];
  /** The `from` of the next page; absent on the last page. */
  readonly next?: TaskIndex;
}

export interface JobPage {
  readonly jobs: readonly Job[];
  readonly next?: JobId;
}

/** Which output to read. */
export interface OutputOptions {
  /** If absent, the latest attempt with output. */
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
  /** In order of offset. A gap between pieces is output beyond the cap, or damaged on disk. */
  readonly pieces: readonly OutputPiece[];
  /** The offset of the next page; absent on the last page. */
  readonly next?: number;
}

/** A small text and its key. */
export interface KeyValue {
  readonly key: string;
  readonly value: string;
  readonly version: number;
  /** By the clock of the broker that wrote it. */
  readonly updatedAt: number;
}

/** Counts of ended tasks in one cell. Cells are numbered from the first requested task. */
export interface EndCounts {
  readonly cell: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
}

/** What the last attempts of ended tasks used, for tasks of about the same duration. */
export interface TaskUsage {
  /** A duration of 2^(step/4) ms up to that of the next step. Less than 1 ms counts as 1. */
  readonly step: number;
  readonly tasks: number;
  /** From start to end, all tasks together. */
  readonly runMs: number;
  readonly cpuMs: number;
  /** The maximum over all tasks; 0 if unknown. */
  readonly peakMemory: number;
  /** When the first of them started, in milliseconds since 1970. */
  readonly firstStart: number;
}

/** Which jobs to list. All given conditions must hold. */
export interface JobFilter {
  /** Jobs in one of these states. An empty list selects no job. */
  readonly states?: readonly ("open" | JobEnd)[];
  /** The whole name. `*` matches any text. */
  readonly name?: string;
  readonly pool?: string;
  readonly key?: string;
  readonly batchKey?: string;
  readonly idempotencyKey?: string;
  readonly createdFrom?: number;
  readonly createdBefore?: number;
  /** Open jobs do not match. */
  readonly endedBefore?: number;
}

/** Which results to list. All given conditions must hold. */
export interface ResultFilter {
  readonly states?: readonly TaskEnd[];
  readonly worker?: string;
}

export interface ResultOptions {
  readonly from: TaskIndex;
  readonly limit: number;
  readonly filter?: ResultFilter;
  /** Include `output`, if it is stored with the result. */
  readonly withOutput?: boolean;
  /** Include `value`, if it has at most this many bytes. */
  readonly maxValue?: number;
}

export interface NextDelayed {
  readonly clock?: number;
  readonly steady?: number;
}
