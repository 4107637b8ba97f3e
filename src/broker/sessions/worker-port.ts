/** The seam between the core and a protocol's session with a worker. */
import type { Reconciled, TasksOf } from "../../dispatch/index.js";
import type { RequestId } from "../../model/ids.js";
import type { Entries, Job } from "../../model/job.js";

/** How the core speaks to a worker; each protocol has its own. */
export interface WorkerPort {
  assign(job: Job, tasks: TasksOf, entries: Entries | undefined): void;
  retract(tasks: readonly TasksOf[]): void;
  cancel(tasks: readonly TasksOf[]): void;
  /** `attachment` is what the asker's protocol has for a worker of the same protocol, and no other understands. */
  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment?: unknown): void;
  cancelCall(request: RequestId): void;
  drain(): void;
  stop(): void;
  /** Another session of the same worker took over, or the broker closes. */
  close(reason: string): void;
}

/** What a worker that joined goes on with, and how much of each task's output is stored. */
export interface JoinResult {
  readonly keep: readonly (Reconciled["keep"][number] & { readonly outputStored: number })[];
  readonly drop: Reconciled["drop"];
}
