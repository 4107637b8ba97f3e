/**
 * The effects of a step. `writes` go to the store in order. `sends` follow when those writes are durable, except for
 * lost task ranges. `calls` need no disk and are sent at once.
 */
import type { ErrorCode } from "../base/errors.js";
import type { Attempt, JobId, RequestId, TaskRangeId, WorkerId } from "../model/ids.js";
import type { Range } from "../model/ranges.js";
import type { Write } from "../model/store.js";

export interface AttemptRange extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
}

export interface AssignedRange extends AttemptRange {
  /** How many tasks of the job the worker may run at once; absent for a job without `maxRunning`. */
  readonly atOnce?: number;
}

export type Send =
  /** Assign these tasks. */
  | ({ readonly kind: "tasks"; readonly worker: WorkerId; readonly rangeId: TaskRangeId } & AssignedRange)
  /** Take unstarted tasks back. */
  | { readonly kind: "retract"; readonly worker: WorkerId; readonly tasks: readonly AttemptRange[] }
  /** Stop these tasks, running or not. */
  | { readonly kind: "cancel"; readonly worker: WorkerId; readonly tasks: readonly AttemptRange[] };

export type Call =
  | { readonly kind: "call"; readonly worker: WorkerId; readonly request: RequestId }
  /** The caller no longer waits. */
  | { readonly kind: "cancelCall"; readonly worker: WorkerId; readonly request: RequestId }
  /** The request is over without a worker's answer. */
  | { readonly kind: "refuse"; readonly request: RequestId; readonly code: ErrorCode; readonly why: string };

export class Decisions {
  readonly writes: Write[] = [];
  readonly sends: Send[] = [];
  readonly calls: Call[] = [];
  /**
   * False for work that may wait a few milliseconds to share a commit with later work: results of a worker that has
   * prefetched tasks, and prefetching. Tasks for free slots, ends of jobs and everything else are committed at once.
   */
  urgent = true;

  get empty(): boolean {
    return this.writes.length === 0 && this.sends.length === 0 && this.calls.length === 0;
  }
}
