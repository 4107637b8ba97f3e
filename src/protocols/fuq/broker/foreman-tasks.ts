/**
 * The tasks of one worker that speaks a version of fuq over a connection: what it says of them in HELLO, OK, UPDATE and ERROR, and how many
 * slots it has.
 */
import type { Core, WorkerPort } from "../../../broker/core.js";
import { type AssignedTask, AssignedTasks } from "../../../broker/sessions/assigned-tasks.js";
import { JobId, type TaskIndex } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import {
  ALL_TASKS,
  COUNT_LIMIT,
  type Hello,
  type Ok,
  pairKey,
  pairOf,
  type Task,
  type TaskPair,
  type Update,
} from "../messages.js";
import { indexOfPair, outcomeOf, recordOutcome, toFuqTask } from "./fuq-task.js";
import { SlotCapacity } from "./slot-capacity.js";

interface FuqTaskFields {
  /** Its number. */
  readonly task: number;
  /** What JOB carries; a foreign task has none. */
  readonly description?: Task;
  /** Version 1: its JOB has left no slot free. */
  tookLastSlot?: boolean;
}

export type FuqTask = AssignedTask<FuqTaskFields>;

interface ForemanTasksOptions {
  readonly core: Core;
  /** The session, as the core knows it. */
  readonly port: WorkerPort;
  /** There is something to send to the worker. */
  readonly onPending: () => void;
  /** How long the UPDATE of a task is waited for that the worker does not have any more. */
  readonly missingMs: number;
}

export class ForemanTasks extends AssignedTasks<FuqTaskFields> {
  readonly capacity = new SlotCapacity();
  readonly #options: ForemanTasksOptions;
  #pause: NodeJS.Timeout | undefined;

  constructor(options: ForemanTasksOptions) {
    super(options.core, options.port);
    this.#options = options;
  }

  get joined(): boolean {
    return this.id !== undefined;
  }

  /** Free slots and running tasks, as an OK names them. */
  get counts(): { readonly nproc: number; readonly nrun: number } {
    return { nproc: Math.max(0, this.capacity.slots - this.usedSlots), nrun: this.usedSlots };
  }

  override close(): void {
    super.close();
    clearTimeout(this.#pause);
  }

  protected describe(job: Job, index: TaskIndex) {
    const description = toFuqTask(job, index);
    return description && { name: pairKey(pairOf(description)), task: description.task, description };
  }

  /** A client of version 1 may name more than it can be sent tasks for at a time. */
  protected slots(): number {
    const usable = this.capacity.usable - this.count("foreign") + this.count("missing");
    return this.capacity.paused ? this.claimedCount : Math.min(COUNT_LIMIT, Math.max(this.claimedCount, usable));
  }

  protected override mayTake(): boolean {
    return !this.capacity.paused && this.usedSlots + this.count("unsent") <= this.capacity.usable;
  }

  protected pending(): void {
    this.#options.onPending();
  }

  protected override ended(task: FuqTask): void {
    this.#record(task, undefined, () => {});
  }

  /** These tasks for a CANCEL. Where all of several tasks of a job are to end, one pair stands for them. */
  cancelPairs(gone: readonly FuqTask[]): readonly TaskPair[] {
    const left = new Map<number, number>();
    for (const { job, state } of this.all()) if (state !== "unsent") left.set(job, (left.get(job) ?? 0) + 1);
    for (const { job } of gone) left.set(job, (left.get(job) ?? 0) - 1);
    const ended = new Set<number>();
    const whole = new Set<number>();
    for (const { job } of gone) {
      if (ended.has(job) && left.get(job) === 0) whole.add(job);
      ended.add(job);
    }
    const pairs = gone.filter(({ job }) => !whole.has(job)).map(assignedPair);
    return [...pairs, ...Array.from(whole, (jobId) => ({ jobId, task: ALL_TASKS }))];
  }

  // Messages of the worker

  /** The task and the unsent ones return to the queue, and the worker gets no task for a moment. */
  refused(task: FuqTask, free: number): void {
    if (!this.has(task)) return;
    const { withheld } = this.capacity;
    const pauseMs = this.capacity.refused(free);
    this.giveBack([task]);
    this.drain();
    if (this.capacity.withheld !== withheld) this.#publishRemark();
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.capacity.paused = false;
      this.publishSlots();
    }, pauseMs);
  }

  /** For `explain`: by the letter of the text a worker's last slot stays free. */
  #publishRemark(): void {
    const profile = this.id && this.core.worker(this.id)?.profile;
    const { withheld } = this.capacity;
    const remark = `refuses tasks while it says that it has a slot free, so ${withheld} of its slots is left alone`;
    if (profile !== undefined) this.core.workerChanged({ ...profile, remark });
  }

  /** `recorded` is called when the result is durable, or known to be nobody's. A task that ended while the worker was away counts. */
  updated(update: Update, recorded: () => void): void {
    const known = this.get(pairKey(update));
    // A task that a worker had begun when it was lost. Others do not count: anybody can send an UPDATE to a raw listener.
    const task = known === undefined || known.state === "unsent" ? this.#reclaimPair(update, true) : known;
    if (task === undefined) {
      recorded();
      return;
    }
    const { state } = task;
    // Its JOB is on its way, so this is the end of an earlier run: the worker may begin it again.
    if (state === "sent") this.setState(task, "foreign");
    else this.remove(task);
    this.publishSlots();
    if (state === "foreign") recorded();
    else this.#record(task, update, recorded);
  }

  /** Compares what the worker lists with what it is known to have. Without a list nothing runs. */
  reconcileHello(hello: Hello | undefined): void {
    const running = (hello?.running ?? []).map(pairOf);
    if (hello?.numProcs !== undefined) this.capacity.slots = hello.numProcs + running.length;
    else if (this.capacity.slots <= running.length) this.capacity.guess(running.length);
    this.#compare(running);
  }

  /** The same where it says only how many it has. True where that determines which: all that it is known to have, or none. */
  reconcileCounts({ nproc, nrun }: Pick<Ok, "nproc" | "nrun">): boolean {
    const known = this.all().filter(({ state }) => state === "running" || state === "foreign");
    this.capacity.slots = nproc + nrun;
    this.#compare(nrun === 0 ? [] : known.map(assignedPair));
    return nrun === 0 || nrun >= known.length;
  }

  #compare(running: readonly TaskPair[]): void {
    const listed = new Set(running.map((pair) => this.#confirmListed(pair)));
    for (const task of this.all()) {
      if (listed.has(task)) continue;
      if (task.state === "foreign") this.remove(task);
      else if (task.state === "running") {
        this.setState(task, "missing");
        this.settleAfter(task, this.#options.missingMs);
      }
    }
    this.publishSlots();
  }

  #confirmListed(pair: TaskPair): FuqTask {
    const name = pairKey(pair);
    const known = this.get(name);
    if (known !== undefined) {
      if (known.state === "missing") clearTimeout(known.settleTimer);
      if (known.state === "missing" || known.state === "unsent") this.setState(known, "running");
      if (known.state === "running") this.watchLimit(known);
      return known;
    }
    // Nobody has it: it stays where it runs. Somebody has, or it is over: it is to end here.
    const own = this.#reclaimPair(pair);
    if (own === undefined) return this.addForeign({ name, task: pair.task }, JobId(pair.jobId));
    this.watchLimit(own);
    return own;
  }

  #reclaimPair(pair: TaskPair, crashedOnly = false): FuqTask | undefined {
    const index = indexOfPair(this.core, pair);
    return index === undefined ? undefined : this.reclaim(JobId(pair.jobId), index, crashedOnly);
  }

  #record(task: FuqTask, update: Update | undefined, recorded: () => void): void {
    if (this.id !== undefined) recordOutcome(this.core, this.id, outcomeOf(task, update), recorded);
  }
}

export const assignedPair = ({ job, task }: FuqTask): TaskPair => ({ jobId: job, task });
