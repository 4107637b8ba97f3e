/** What the sessions of protocols may read of the broker: workers, their tasks, open jobs, small stored texts. */
import { type AttemptRange, type StandingRecord, type State, standingOf } from "../dispatch/index.js";
import { attemptRangesOf, claimOf } from "../dispatch/state.js";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import type { KeyValue, Store } from "../model/store.js";
import type { KnownWorker } from "./sessions/worker-port.js";

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
   * The workers whose protocol begins so, also those that are away. After a start of the broker the protocol of a worker that cannot
   * resume is not known.
   */
  workers(protocol = ""): KnownWorker[] {
    return [...this.state.workers.values()].filter(({ profile }) => profile.protocol.startsWith(protocol));
  }

  /** The tasks that a worker has, also one that is away. */
  claimsOf(id: WorkerId): readonly AttemptRange[] {
    const worker = this.state.workers.get(id);
    return worker === undefined ? [] : attemptRangesOf(worker);
  }

  /** The worker's claim on a task, if the task is still its own. */
  claimOf(id: WorkerId, job: JobId, index: TaskIndex): TaskClaim | undefined {
    const worker = this.state.workers.get(id);
    const claim = worker && claimOf(worker, job, index);
    return claim && { attempt: claim.attempt, startedAt: claim.startedAt?.get(index) };
  }

  /** How workers of this name have behaved. */
  standingOf(name: string): StandingRecord {
    return standingOf(this.state, name);
  }

  /** How long a worker may be away, unless its profile says otherwise. */
  get graceMs(): number {
    return this.state.settings.graceMs;
  }

  /** This run of the broker on its store. */
  get epoch(): number {
    return this.state.epoch;
  }

  /** An open job. */
  job(id: JobId): Job | undefined {
    return this.state.jobs.get(id)?.job;
  }

  /** What is left of an open job: whether tasks of it wait, and which workers have tasks of it. */
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
