/** Reports of workers that are one step of dispatch. */
import { now } from "../base/clock.js";
import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import {
  type AttemptRange,
  type Decisions,
  type Done,
  onDone,
  onForgive,
  onProfile,
  onReclaim,
  onRetracted,
  onSlots,
  onStarted,
  type State,
  type WorkerProfile,
} from "../dispatch/index.js";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import type { Store } from "../model/store.js";
import { CoreView } from "./core-view.js";

export abstract class WorkerReports extends CoreView {
  protected readonly log: Log;

  constructor(store: Store, state: State, log: Log) {
    super(store, state);
    this.log = log;
  }

  /** Runs a step of dispatch and executes its decisions. `after` is called when its writes are durable. */
  abstract decide<T>(step: (out: Decisions) => T, after?: () => void): T;

  /** The worker reports that it has this task. Returns its attempt if the worker may keep it. */
  reclaim(id: WorkerId, job: JobId, index: TaskIndex, crashedOnly = false): Attempt | undefined {
    return this.decide((out) => onReclaim(this.state, out, id, job, index, now(), crashedOnly));
  }

  workerChanged(profile: WorkerProfile): void {
    this.decide((out) => onProfile(this.state, out, profile, now()));
  }

  /** Sets how many tasks and requests the worker can have at a time, including its current ones. */
  workerSlots(id: WorkerId, slots: number): void {
    this.decide((out) => onSlots(this.state, out, id, slots, now()));
  }

  workerStarted(id: WorkerId, tasks: readonly { job: JobId; index: number; attempt: number }[]): void {
    onStarted(this.state, id, tasks, now());
  }

  /** `recorded` is called when the results are durable, or are dropped as stale. */
  workerDone(id: WorkerId, done: readonly Done[], recorded: () => void): void {
    const stale = this.decide((out) => onDone(this.state, out, id, done, now()), recorded);
    if (stale > 0) this.log.info({ worker: id, stale }, "results came for tasks that are no longer this worker's");
  }

  /** The session could not send these tasks, for example if a message is too large. They fail with the reason. */
  workerCannotTake(id: WorkerId, { job, first, last, attempt }: AttemptRange, cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    const outcome = { started: now(), ended: now(), error: `${code}: ${message}`, outputBytes: 0 };
    const done = Array.from({ length: last - first + 1 }, (_, i) => ({ job, index: first + i, attempt, ...outcome }));
    this.workerDone(id, done, () => {});
  }

  workerRetracted(id: WorkerId, tasks: readonly AttemptRange[]): void {
    this.decide((out) => onRetracted(this.state, out, id, tasks, now()));
  }

  /** Resets the standing of workers of this name. */
  async forgive(name: string): Promise<boolean> {
    return new Promise((resolve) => {
      const known: boolean = this.decide(
        (out) => onForgive(this.state, out, name, now()),
        () => resolve(known),
      );
    });
  }
}
