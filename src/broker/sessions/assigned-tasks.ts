/**
 * The tasks of one worker, between the core and the session of a protocol that runs tasks.
 *
 *   unsent      assigned to the worker, not sent yet
 *   sent        sent; the worker has not reported the start
 *   running     the worker has started it
 *   missing     the worker does not list a task that it should have: its result may still come
 *   foreign     the worker has a task that it should not have
 *
 * Tasks that are sent, running or foreign take a slot of the worker. The session sends unsent tasks and cancels in the
 * order of its protocol, and reports the worker's answers.
 */
import { MAX_TIMER_MS, now } from "../../base/clock.js";
import type { AttemptRange, WorkerProfile } from "../../dispatch/index.js";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../../model/ids.js";
import type { Entries, Job } from "../../model/job.js";
import type { Bytes } from "../../model/recipe.js";
import type { Core } from "../core.js";
import type { WorkerPort } from "../core-view.js";

type AssignedTaskState = "unsent" | "sent" | "running" | "missing" | "foreign";

interface TaskFields {
  /** Its name in the messages of the protocol. */
  readonly name: string;
  readonly job: JobId;
  /** -1 for a foreign task. */
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  /** Changed by `AssignedTasks` only. */
  readonly state: AssignedTaskState;
  /** When it was started, by the broker's clock. */
  since: number;
  timedOut: boolean;
  limitTimer?: NodeJS.Timeout;
  /** Runs while the session waits for the report of its end. */
  settleTimer?: NodeJS.Timeout;
}

/** `D`: the fields that a protocol adds to a task. */
export type AssignedTask<D> = TaskFields & D;
type Described<D> = D & { readonly name: string };

export type TaskWorkerProfile = Omit<WorkerProfile, "services" | "reserveRequests" | "total">;

export const rangeOf = ({ job, index, attempt }: Pick<TaskFields, "job" | "index" | "attempt">): AttemptRange => ({
  job,
  first: index,
  last: index,
  attempt,
});

export const isInRanges = (
  { job, index, attempt }: Pick<TaskFields, "job" | "index" | "attempt">,
  ranges: readonly AttemptRange[],
): boolean =>
  ranges.some((one) => one.job === job && one.attempt === attempt && one.first <= index && index <= one.last);

export abstract class AssignedTasks<D extends object> {
  protected readonly core: Core;
  readonly #port: WorkerPort;
  readonly #tasks = new Map<string, AssignedTask<D>>();
  readonly #unsent = new Set<AssignedTask<D>>();
  readonly #toCancel = new Set<AssignedTask<D>>();
  readonly #counts: Record<AssignedTaskState, number> = { unsent: 0, sent: 0, running: 0, missing: 0, foreign: 0 };
  #id: WorkerId | undefined;
  #leaving: "in order" | "now" | undefined;
  #orderly = false;
  /** It gets no more tasks. */
  #ending = false;
  #closed = false;

  constructor(core: Core, port: WorkerPort) {
    this.core = core;
    this.#port = port;
  }

  /** The name of a task, and its added fields. Undefined if this worker cannot run it. */
  protected abstract describe(job: Job, index: TaskIndex, entry: Bytes | undefined): Described<D> | undefined;
  /** How many tasks the worker can have, including its current ones. */
  protected abstract slots(): number;
  /** Called when there is something to send. */
  protected abstract pending(): void;
  /** Called when a task has ended without a report of the worker. */
  protected ended(_task: AssignedTask<D>): void {}

  /** An assignment that was decided while slots were free may arrive when none is. */
  protected mayTake(): boolean {
    return true;
  }

  // The tasks

  get id(): WorkerId | undefined {
    return this.#id;
  }

  get(name: string): AssignedTask<D> | undefined {
    return this.#tasks.get(name);
  }

  has(task: AssignedTask<D>): boolean {
    return this.#tasks.get(task.name) === task;
  }

  all(): readonly AssignedTask<D>[] {
    return [...this.#tasks.values()];
  }

  count(state: AssignedTaskState): number {
    return this.#counts[state];
  }

  /** Tasks that the broker has claimed for this worker. */
  get claimedCount(): number {
    return this.#tasks.size - this.#counts.foreign;
  }

  /** Tasks that take a slot of the worker. */
  get usedSlots(): number {
    const { sent, running, foreign } = this.#counts;
    return sent + running + foreign;
  }

  protected add(fields: Described<D> & Pick<TaskFields, "job" | "index" | "attempt" | "state">): AssignedTask<D> {
    const before = this.#tasks.get(fields.name);
    if (before !== undefined) this.remove(before);
    const task: AssignedTask<D> = { since: now(), timedOut: false, ...fields };
    this.#tasks.set(task.name, task);
    this.#counts[task.state]++;
    if (task.state === "unsent") this.#unsent.add(task);
    return task;
  }

  protected setState(task: AssignedTask<D>, state: AssignedTaskState): void {
    if (!this.has(task)) return;
    this.#counts[task.state]--;
    this.#counts[state]++;
    this.#unsent.delete(task);
    // An earlier run of it has ended. This one may never start.
    if (state === "foreign") this.#toCancel.delete(task);
    (task as { state: AssignedTaskState }).state = state;
  }

  remove(task: AssignedTask<D>): void {
    clearTimeout(task.limitTimer);
    clearTimeout(task.settleTimer);
    if (!this.has(task)) return;
    this.#tasks.delete(task.name);
    this.#unsent.delete(task);
    this.#toCancel.delete(task);
    this.#counts[task.state]--;
  }

  /** Returns tasks to the queue, without counting an attempt. */
  giveBack(tasks: readonly AssignedTask<D>[]): void {
    for (const one of tasks) this.remove(one);
    // The slots first. Otherwise the returned tasks would be assigned here again at once.
    this.publishSlots();
    if (this.#id !== undefined) this.core.workerRetracted(this.#id, tasks.map(rangeOf));
  }

  /** The worker will not report its tasks. */
  giveBackAll(): void {
    this.#ending = true;
    this.giveBack(this.all().filter(({ state }) => state !== "foreign"));
  }

  publishSlots(): void {
    if (this.#id === undefined || this.#closed) return;
    this.core.workerSlots(this.#id, this.#ending ? this.claimedCount : this.slots());
  }

  // Joining and leaving

  /** Joins with the claimed tasks for which `hasTask` is true. The worker gets no other until `publishSlots`. */
  async join(
    profile: TaskWorkerProfile,
    hasTask: (name: string, attempt: Attempt) => boolean = () => true,
  ): Promise<void> {
    const { id } = profile;
    // An older connection would change the same tasks.
    const older = this.core.portOf(id);
    if (older !== this.#port) older?.close("another connection of this worker took over");
    const claimed = await this.core.claimedBy(id);
    if (this.#closed) return;
    for (const { job, first, last, attempt } of claimed) {
      const open = this.core.job(job);
      for (let index = first; index <= last && open !== undefined; index++) {
        const described = this.describe(open, index, undefined);
        if (described === undefined || !hasTask(described.name, attempt)) continue;
        const task = this.add({ ...described, job, index, attempt, state: "running" });
        task.since = this.core.claimOf(id, job, index)?.startedAt ?? task.since;
      }
    }
    await this.joinNew(profile);
  }

  /** Joins a worker without tasks. With SQLite this takes effect at once: the worker's next message finds it joined. */
  async joinNew(profile: TaskWorkerProfile): Promise<void> {
    this.#id = profile.id;
    const held = this.all().map((task) => ({ ...rangeOf(task), state: "running" as const }));
    const total = { slots: this.claimedCount };
    await this.core.workerJoins({ ...profile, services: [], reserveRequests: 0, total }, held, this.#port);
    if (this.#closed) this.core.workerDisconnected(profile.id, this.#port, false);
  }

  /** The worker was asked to stop, so its disconnect is orderly. `now`: it leaves without a report of its tasks. */
  markLeaving(now = false): void {
    this.#leaving = now ? "now" : "in order";
    if (this.#id !== undefined) this.core.workerDrains(this.#id);
    this.drain();
  }

  /** Nothing more is sent or handled, even if the connection is still open. Unsent tasks return to the queue. */
  close(): void {
    if (this.#closed) return;
    this.#ending = true;
    this.drain();
    if (this.#leaving === "now") this.giveBackAll();
    this.#closed = true;
    this.#orderly = this.claimedCount === 0;
    for (const task of this.all()) this.remove(task);
  }

  /** The connection is gone. */
  disconnected(announced = this.#leaving !== undefined): void {
    this.close();
    if (this.#id !== undefined) this.core.workerDisconnected(this.#id, this.#port, announced && this.#orderly);
  }

  // Calls of the core

  assign(job: Job, { first, last, attempt }: AttemptRange, entries?: Entries): void {
    const back: AttemptRange[] = [];
    for (let index = first; index <= last; index++) {
      const described = this.describe(job, index, entries?.[index - first]);
      const task = described && this.add({ ...described, job: job.id, index, attempt, state: "unsent" });
      if (task !== undefined && this.#leaving === undefined && !this.#closed && this.mayTake()) continue;
      if (task !== undefined) this.remove(task);
      back.push({ job: job.id, first: index, last: index, attempt });
    }
    if (back.length > 0) this.publishSlots();
    if (back.length > 0 && this.#id !== undefined) this.core.workerRetracted(this.#id, back);
    this.pending();
  }

  /** Dispatch waits for the answer, so one is sent even if no task can be retracted. */
  retract(tasks: readonly AttemptRange[]): void {
    this.giveBack([...this.#unsent].filter((task) => isInRanges(task, tasks)));
  }

  cancel(tasks: readonly AttemptRange[]): void {
    this.retract(tasks);
    for (const task of this.#tasks.values())
      if ((task.state === "sent" || task.state === "running") && isInRanges(task, tasks)) this.#toCancel.add(task);
    this.pending();
  }

  /** Unsent tasks return to the queue. */
  drain(): void {
    this.giveBack([...this.#unsent]);
  }

  // Sending

  /** The next unsent task. It counts as sent from now on. */
  nextUnsent(): AssignedTask<D> | undefined {
    const [task] = this.#unsent;
    if (task !== undefined) this.setState(task, "sent");
    return task;
  }

  takeCancels(limit?: number): readonly AssignedTask<D>[] {
    const gone = [...this.#toCancel].slice(0, limit);
    for (const task of gone) this.#toCancel.delete(task);
    return gone;
  }

  // Reports of the worker

  started(task: AssignedTask<D>): void {
    if (this.has(task) && task.state === "sent" && this.#id !== undefined) {
      this.setState(task, "running");
      task.since = now();
      this.core.workerStarted(this.#id, [task]);
      this.watchLimit(task);
    } else if (this.has(task) && task.state === "foreign") this.#toCancel.add(task);
  }

  /** The worker has a task that had returned to the queue. It keeps the task if no other worker has it. */
  reclaim(job: JobId, index: TaskIndex, crashedOnly = false): AssignedTask<D> | undefined {
    const open = this.core.job(job);
    const described = open && this.describe(open, index, undefined);
    if (described === undefined || this.#id === undefined) return undefined;
    const attempt = this.core.reclaim(this.#id, job, index, crashedOnly);
    return attempt === undefined ? undefined : this.add({ ...described, job, index, attempt, state: "running" });
  }

  /** Adds a task that the worker has and must end. */
  protected addForeign(described: Described<D>, job: JobId): AssignedTask<D> {
    const task = this.add({ ...described, job, index: -1, attempt: 0, state: "foreign" });
    this.#toCancel.add(task);
    return task;
  }

  /** Waits this long for the report of its end, then settles the task without one. */
  settleAfter(task: AssignedTask<D>, ms: number): void {
    if (!this.has(task)) return;
    clearTimeout(task.settleTimer);
    task.settleTimer = setTimeout(() => this.settle(task), ms);
  }

  /** No report will come: the worker does not have the task, or has `stopped` it. */
  settle(task: AssignedTask<D>, stopped = task.timedOut): void {
    if (!this.has(task)) return;
    const { state } = task;
    if (state !== "foreign" && !stopped) {
      this.giveBack([task]);
      return;
    }
    this.remove(task);
    this.publishSlots();
    if (state !== "foreign") this.ended(task);
  }

  /** For protocols without time limits: the broker cancels tasks that take too long. */
  protected watchLimit(task: AssignedTask<D>): void {
    const limitMs = this.core.job(task.job)?.limits.timeLimitMs;
    clearTimeout(task.limitTimer);
    if (limitMs === undefined || task.timedOut) return;
    const leftMs = task.since + limitMs - now();
    task.limitTimer = setTimeout(
      () => {
        if (leftMs > MAX_TIMER_MS) return this.watchLimit(task);
        task.timedOut = true;
        this.#toCancel.add(task);
        this.pending();
      },
      Math.min(MAX_TIMER_MS, Math.max(0, leftMs)),
    );
  }
}
