/**
 * The interfaces between the core and a protocol session: what a session implements for its worker (`WorkerPort`), and
 * what it may read (`CoreView`): workers, their tasks, open jobs, stored texts.
 */
import {
  type AssignedRange,
  type AttemptRange,
  type Reconciled,
  type StandingRecord,
  type State,
  standingOf,
  type WorkerState,
} from "../dispatch/index.js";
import { attemptRangesOf, claimOf } from "../dispatch/state.js";
import type { Attempt, JobId, RequestId, TaskIndex, WorkerId } from "../model/ids.js";
import type { Entries, Job } from "../model/job.js";
import type { Store } from "../model/store.js";
import type { KeyValue } from "../model/store-reads.js";
import type { MachineLoad } from "../model/worker-settings.js";

/** How the core sends to a worker; each protocol implements it. */
export interface WorkerPort {
  assign(job: Job, tasks: AssignedRange, entries: Entries | undefined): void;
  retract(tasks: readonly AttemptRange[]): void;
  cancel(tasks: readonly AttemptRange[]): void;
  /** `attachment` is from the client's protocol, for a worker of the same protocol. */
  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment?: unknown): void;
  cancelCall(request: RequestId): void;
  drain(): void;
  /** The protocol has no drain: the worker ends instead, which cannot be undone. */
  readonly drainEnds?: boolean;
  stop(): void;
  /** Ends this many slots as soon as they are free; `now` ends all, with their tasks. Absent if not supported. */
  stopSlots?(slots: number | "now"): void;
  /** As last reported by the worker. */
  readonly machine?: MachineLoad | undefined;
  /** Another session of the same worker replaces this one, or the broker stops. */
  close(reason: string): void;
}

/** A worker, as the core shows it to sessions. */
export type KnownWorker = Readonly<Pick<WorkerState, "profile" | "connected" | "standing" | "assigned">>;

/** The tasks that a worker keeps when it joins, with the stored length of their output, and those that it drops. */
export interface JoinResult {
  readonly keep: readonly (Reconciled["keep"][number] & { readonly outputStored: number })[];
  readonly drop: Reconciled["drop"];
}

/** A task that is assigned to a worker. `startedAt`: when the broker learned that it was started. */
interface TaskClaim {
  readonly attempt: Attempt;
  readonly startedAt: number | undefined;
}

export class CoreView {
  readonly store: Store;
  readonly state: State;

  constructor(store: Store, state: State) {
    this.store = store;
    this.state = state;
  }

  worker(id: WorkerId): KnownWorker | undefined {
    return this.state.workers.get(id);
  }

  /**
   * The workers whose protocol has this prefix, including disconnected ones. After a restart of the broker the protocol
   * of a worker that cannot resume is unknown.
   */
  workers(protocol = ""): KnownWorker[] {
    return [...this.state.workers.values()].filter(({ profile }) => profile.protocol.startsWith(protocol));
  }

  /** The tasks that a worker has, even a disconnected one. */
  claimsOf(id: WorkerId): readonly AttemptRange[] {
    const worker = this.state.workers.get(id);
    return worker === undefined ? [] : attemptRangesOf(worker);
  }

  /** The worker's claim on a task; undefined if the task is no longer its own. */
  claimOf(id: WorkerId, job: JobId, index: TaskIndex): TaskClaim | undefined {
    const worker = this.state.workers.get(id);
    const claim = worker && claimOf(worker, job, index);
    return claim && { attempt: claim.attempt, startedAt: claim.startedAt?.get(index) };
  }

  /** How workers of this name have behaved. */
  standingOf(name: string): StandingRecord {
    return standingOf(this.state, name);
  }

  /** How long a worker may be disconnected, unless its profile has another time. */
  get graceMs(): number {
    return this.state.settings.graceMs;
  }

  /** This run of the broker on its store. */
  get epoch(): number {
    return this.state.epoch;
  }

  job(id: JobId): Job | undefined {
    return this.state.jobs.get(id)?.job;
  }

  /** The rest of an open job: whether tasks wait, and which workers have tasks of it. */
  openWork(id: JobId): { readonly waits: boolean; readonly workers: readonly WorkerId[] } | undefined {
    const job = this.state.jobs.get(id);
    if (job === undefined) return undefined;
    const waits = job.ready > 0 || job.inBackoff.size > 0 || job.pending.size > 0 || job.mayLease || job.leasing;
    return { waits, workers: Array.from(job.claims, ({ worker }) => worker.profile.id) };
  }

  /** A job, open or ended. */
  async storedJob(id: JobId): Promise<Job | undefined> {
    return this.job(id) ?? this.store.job(id);
  }

  /** The texts that were stored with `put`. */
  keptTexts(bucket: string): Promise<readonly KeyValue[]> {
    return this.store.keyValues(bucket);
  }
}
