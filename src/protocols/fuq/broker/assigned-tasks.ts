/**
 * The tasks of one worker, between the core and a fuq session: which tasks it has and in which state, how many slots are free, and what is
 * still to be sent. The session sends it, in the order of its protocol.
 */
import { now } from "../../../base/clock.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import type { AttemptRange, WorkerProfile } from "../../../dispatch/index.js";
import { JobId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { COUNT_LIMIT, type Hello, type Ok, type TaskPair, type Update } from "../messages.js";
import { type AssignedTask, AssignedTaskMap, isInRanges, rangeOf } from "./assigned-task-map.js";
import { indexOfPair, toFuqTask } from "./fuq-task.js";
import { SlotCapacity } from "./slot-capacity.js";
import { outcomeOf, recordOutcome } from "./task-outcome.js";

export interface AssignedTasksOptions {
  readonly core: Core;
  /** The session, as the core knows it. */
  readonly port: WorkerPort;
  /** There is something to send to the worker. */
  readonly onPending: () => void;
  /** How long the UPDATE of a task is waited for that the worker does not have any more. */
  readonly missingMs: number;
}

export type FuqWorkerProfile = Pick<
  WorkerProfile,
  "id" | "session" | "name" | "tags" | "resumable" | "protocol" | "pool" | "address" | "graceMs"
>;

const MAX_TIMER_MS = 2 ** 31 - 1;

export class AssignedTasks {
  readonly capacity = new SlotCapacity();
  readonly #options: AssignedTasksOptions;
  readonly #core: Core;
  readonly #tasks = new AssignedTaskMap();
  readonly #toCancel = new Set<AssignedTask>();
  #unsent: AssignedTask[] = [];
  #profile: WorkerProfile | undefined;
  #pause: NodeJS.Timeout | undefined;
  #leaving = false;
  #leavingNow = false;
  #orderly = false;
  #closed = false;

  constructor(options: AssignedTasksOptions) {
    this.#options = options;
    this.#core = options.core;
  }

  get joined(): boolean {
    return this.#profile !== undefined;
  }

  /** Free slots and running tasks, as an OK names them. */
  get counts(): { readonly nproc: number; readonly nrun: number } {
    return { nproc: this.capacity.freeSlots(this.#tasks), nrun: this.#tasks.usedSlots };
  }

  /** It gets nothing until its first HELLO is reconciled. */
  async join(profile: FuqWorkerProfile): Promise<void> {
    // An older connection would change the same tasks.
    this.#core.portOf(profile.id)?.close("another connection of this worker took over");
    const known = await this.#core.claimedBy(profile.id);
    if (this.#closed) return;
    for (const { job, first, last, attempt } of known) {
      const open = this.#core.job(job);
      for (let index = first; index <= last && open !== undefined; index++) {
        const since = this.#core.claimOf(profile.id, job, index)?.startedAt ?? now();
        const task = taskNumber(open, index);
        this.#tasks.add({ jobId: job, task, index, attempt, state: "running", since, timedOut: false });
      }
    }
    this.#profile = {
      ...profile,
      services: [],
      total: { slots: this.#tasks.claimedCount },
      reserveRequests: 0,
      canPrefetch: false,
      taskKinds: ["numbered"],
    };
    const held = known.map((tasks) => ({ ...tasks, state: "running" as const }));
    await this.#core.workerJoins(this.#profile, held, this.#options.port);
    if (this.#closed) this.#core.workerDisconnected(profile.id, this.#options.port, false);
  }

  /** Nothing more is sent or handled, whether or not the connection is closed already. Unsent tasks return to the queue. */
  close(): void {
    if (this.#closed) return;
    this.capacity.pause();
    this.#returnTasks(this.#takeUnsent());
    if (this.#leavingNow) this.returnAll();
    this.#closed = true;
    this.#orderly = this.#leaving && this.#tasks.claimedCount === 0;
    clearTimeout(this.#pause);
    this.#tasks.clear();
    this.#toCancel.clear();
  }

  /** The connection is gone. */
  disconnected(): void {
    this.close();
    if (this.#profile !== undefined) this.#core.workerDisconnected(this.#profile.id, this.#options.port, this.#orderly);
  }

  /** The worker will not report its tasks: they return to the queue. */
  returnAll(): void {
    this.capacity.pause();
    this.#returnTasks(this.#tasks.all().filter(({ state }) => state !== "foreign"));
  }

  /** It was asked to stop: its disconnect is orderly. `now`: it goes without an UPDATE of its tasks. */
  markLeaving(now = false): void {
    this.#leaving = true;
    this.#leavingNow = now;
    if (this.#profile !== undefined) this.#core.workerDrains(this.#profile.id);
    this.#returnTasks(this.#takeUnsent());
  }

  // Calls of the core

  assign(job: Job, { first, last, attempt }: AttemptRange): void {
    const back: AssignedTask[] = [];
    for (let index = first; index <= last; index++) {
      const description = toFuqTask(job, index);
      const held = this.#tasks.add({
        jobId: job.id,
        task: taskNumber(job, index),
        index,
        attempt,
        state: "unsent",
        since: now(),
        timedOut: false,
        ...(description === undefined ? {} : { description }),
      });
      if (description === undefined || !this.#mayTake) back.push(held);
      else this.#unsent.push(held);
    }
    if (back.length > 0) this.#returnTasks(back);
    this.publishSlots();
    this.#options.onPending();
  }

  /** An assignment that was decided while slots were free may arrive when none is. */
  get #mayTake(): boolean {
    return !this.#leaving && !this.#closed && this.capacity.fits(this.#tasks);
  }

  retract(tasks: readonly AttemptRange[]): void {
    const retracted = this.#unsent.filter((held) => isInRanges(held, tasks));
    this.#unsent = this.#unsent.filter((held) => !retracted.includes(held));
    this.#returnTasks(retracted);
  }

  cancel(tasks: readonly AttemptRange[]): void {
    this.retract(tasks);
    for (const held of this.#tasks.all()) {
      if ((held.state === "sent" || held.state === "running") && isInRanges(held, tasks)) this.#toCancel.add(held);
    }
    this.#options.onPending();
  }

  drain(): void {
    this.#returnTasks(this.#takeUnsent());
  }

  // What is to be sent

  /** The next task, which is now on its way. */
  nextUnsent(): AssignedTask | undefined {
    const held = this.#unsent.shift();
    if (held === undefined) return undefined;
    // It may have been assigned again meanwhile, and be in the list twice.
    if (!this.#tasks.has(held)) return this.nextUnsent();
    this.#tasks.setState(held, "sent");
    return held;
  }

  takeCancels(limit?: number): readonly AssignedTask[] {
    const gone = [...this.#toCancel].slice(0, limit);
    for (const held of gone) this.#toCancel.delete(held);
    return gone;
  }

  /** These tasks for a CANCEL. */
  cancelPairs(gone: readonly AssignedTask[]): readonly TaskPair[] {
    return this.#tasks.cancelPairs(gone);
  }

  // Messages of the worker

  /** It has begun with it. */
  started(held: AssignedTask): void {
    if (this.#tasks.has(held) && held.state === "sent" && this.#profile !== undefined) {
      this.#tasks.setState(held, "running");
      held.since = now();
      const { job, attempt } = rangeOf(held);
      this.#core.workerStarted(this.#profile.id, [{ job, index: held.index, attempt }]);
      this.#watchLimit(held);
    } else if (this.#tasks.has(held) && held.state === "foreign") this.#toCancel.add(held);
    this.publishSlots();
  }

  /** The task and the unsent ones return to the queue at no cost, and the worker gets no task for a moment. */
  refused(held: AssignedTask, free: number): void {
    if (!this.#tasks.has(held)) return;
    const pauseMs = this.capacity.refused(free);
    this.#toCancel.delete(held);
    this.#returnTasks([held, ...this.#takeUnsent()]);
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.capacity.resume();
      this.publishSlots();
    }, pauseMs);
  }

  /** `recorded` is called when the result is durable, or known to be nobody's. A task that ended while the worker was away counts. */
  updated(update: Update, recorded: () => void): void {
    const known = this.#tasks.get(update);
    // A task that a worker had begun when it was lost. Others do not count: anybody can send an UPDATE to a raw listener.
    const held = known === undefined || known.state === "unsent" ? this.#reclaim(update, true) : known;
    if (this.#profile === undefined || held === undefined) {
      recorded();
      return;
    }
    const { state } = held;
    // Its JOB is on its way, so this is the end of an earlier run: the worker may begin it again.
    if (state === "sent") this.#tasks.setState(held, "foreign");
    else this.#tasks.remove(held);
    this.#toCancel.delete(held);
    this.publishSlots();
    if (state === "foreign") recorded();
    else this.#record(held, update, recorded);
  }

  /** Compares what the worker lists with what it is known to have. Without a list nothing runs. */
  reconcileHello(hello: Hello | undefined): void {
    const running = (hello?.running ?? []).map(({ task, job }) => ({ jobId: job.jobId, task }));
    if (hello?.numProcs !== undefined) this.capacity.slots = hello.numProcs + running.length;
    else if (this.capacity.slots <= running.length) this.capacity.guess(running.length);
    this.#compare(running);
  }

  /** The same where it says only how many it has. True where that determines which: all that it is known to have, or none. */
  reconcileCounts({ nproc, nrun }: Pick<Ok, "nproc" | "nrun">): boolean {
    const known = this.#tasks.all().filter(({ state }) => state === "running" || state === "foreign");
    this.capacity.slots = nproc + nrun;
    this.#compare(nrun === 0 ? [] : known);
    return nrun === 0 || nrun >= known.length;
  }

  #compare(running: readonly TaskPair[]): void {
    const listed = new Set(running.map((pair) => this.#confirmListed(pair)));
    this.#unsent = this.#unsent.filter(({ state }) => state === "unsent");
    for (const held of this.#tasks.all()) {
      if (listed.has(held)) continue;
      if (held.state === "foreign") this.#tasks.remove(held);
      else if (held.state === "running") {
        this.#tasks.setState(held, "missing");
        this.settleAfter(held, this.#options.missingMs);
      }
    }
    this.publishSlots();
  }

  #confirmListed(pair: TaskPair): AssignedTask {
    const known = this.#tasks.get(pair);
    if (known !== undefined) {
      if (known.state === "missing") clearTimeout(known.settleTimer);
      if (known.state === "missing" || known.state === "unsent") this.#tasks.setState(known, "running");
      if (known.state === "running") this.#watchLimit(known);
      return known;
    }
    // Nobody has it: it stays where it runs. Somebody has, or it is over: it is to end here.
    const own = this.#reclaim(pair);
    if (own !== undefined) {
      this.#watchLimit(own);
      return own;
    }
    const foreign = { ...pair, index: -1, attempt: 0, state: "foreign", since: now(), timedOut: false } as const;
    const held = this.#tasks.add(foreign);
    this.#toCancel.add(held);
    return held;
  }

  /** Assigns the task to this worker again, where nobody else has it. */
  #reclaim(pair: TaskPair, crashedOnly = false): AssignedTask | undefined {
    const index = indexOfPair(this.#core, pair);
    if (index === undefined || this.#profile === undefined) return undefined;
    const attempt = this.#core.reclaim(this.#profile.id, JobId(pair.jobId), index, crashedOnly);
    if (attempt === undefined) return undefined;
    return this.#tasks.add({ ...pair, index, attempt, state: "running", since: now(), timedOut: false });
  }

  /** Waits so long for its UPDATE; then the task is settled without. */
  settleAfter(held: AssignedTask, ms: number): void {
    if (!this.#tasks.has(held)) return;
    clearTimeout(held.settleTimer);
    held.settleTimer = setTimeout(() => this.settle(held), ms);
  }

  /** No UPDATE will come: the worker does not have it, or `stopped` it. */
  settle(held: AssignedTask, stopped = held.timedOut): void {
    if (!this.#tasks.has(held)) return;
    if (held.state === "foreign" || stopped) this.#tasks.remove(held);
    else this.#returnTasks([held]);
    if (held.state !== "foreign" && stopped) this.#record(held, undefined, () => {});
    this.publishSlots();
  }

  /** Reports the usable slots to the core. */
  publishSlots(): void {
    // A client of version 1 may name more than it can be sent tasks for at a time.
    const slots = Math.min(COUNT_LIMIT, this.capacity.total(this.#tasks));
    if (this.#profile === undefined || this.#closed || this.#profile.total.slots === slots) return;
    this.#profile = { ...this.#profile, total: { slots }, ...remarkOn(this.capacity.withheld) };
    this.#core.workerChanged(this.#profile);
  }

  #record(held: AssignedTask, update: Update | undefined, recorded: () => void): void {
    if (this.#profile !== undefined) recordOutcome(this.#core, this.#profile.id, outcomeOf(held, update), recorded);
  }

  #takeUnsent(): readonly AssignedTask[] {
    return this.#unsent.splice(0);
  }

  #returnTasks(held: readonly AssignedTask[]): void {
    for (const one of held) this.#tasks.remove(one);
    // The slots first, or they would be filled at once with the tasks that were just returned.
    this.publishSlots();
    if (this.#profile !== undefined) this.#core.workerRetracted(this.#profile.id, held.map(rangeOf));
  }

  /** fuq knows no time limits: the foreman cancels what takes too long. */
  #watchLimit(held: AssignedTask): void {
    const limitMs = this.#core.job(JobId(held.jobId))?.limits.timeLimitMs;
    clearTimeout(held.limitTimer);
    if (limitMs === undefined || held.timedOut) return;
    const leftMs = held.since + limitMs - now();
    held.limitTimer = setTimeout(
      () => {
        if (leftMs > MAX_TIMER_MS) return this.#watchLimit(held);
        held.timedOut = true;
        this.#toCancel.add(held);
        this.#options.onPending();
      },
      Math.min(MAX_TIMER_MS, Math.max(0, leftMs)),
    );
  }
}

/** For `explain`: by the letter of the text a worker's last slot stays free. */
const remarkOn = (withheld: number): Pick<WorkerProfile, "remark"> =>
  withheld === 0
    ? {}
    : { remark: `refuses tasks while it says that it has a slot free, so ${withheld} of its slots is left alone` };
