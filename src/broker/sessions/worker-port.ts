/** The interface between the core and a protocol's session with a worker. */
import type { AssignedRange, AttemptRange, Reconciled, WorkerState } from "../../dispatch/index.js";
import type { RequestId } from "../../model/ids.js";
import type { Entries, Job } from "../../model/job.js";
import type { MachineLoad } from "../../model/worker-settings.js";

/** How the core sends to a worker; each protocol implements it. */
export interface WorkerPort {
  assign(job: Job, tasks: AssignedRange, entries: Entries | undefined): void;
  retract(tasks: readonly AttemptRange[]): void;
  cancel(tasks: readonly AttemptRange[]): void;
  /** `attachment` is from the client's protocol, for a worker of the same protocol. */
  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment?: unknown): void;
  cancelCall(request: RequestId): void;
  drain(): void;
  /** The protocol has no drain of its own: the worker ends, which cannot be undone. */
  readonly drainEnds?: boolean;
  stop(): void;
  /** So many slots end as soon as they are free, or all of them now, whatever runs. Absent where the protocol has no message for it. */
  stopSlots?(slots: number | "now"): void;
  /** As the worker has last reported it. */
  readonly machine?: MachineLoad | undefined;
  /** Another session of the same worker took over, or the broker stops. */
  close(reason: string): void;
}

/** What the core says of a worker. */
export type KnownWorker = Readonly<Pick<WorkerState, "profile" | "connected" | "standing" | "assigned">>;

/** The tasks that a worker keeps when it joins, with how much of their output is stored, and those that it drops. */
export interface JoinResult {
  readonly keep: readonly (Reconciled["keep"][number] & { readonly outputStored: number })[];
  readonly drop: Reconciled["drop"];
}
