/**
 * What one worker has to do, between the broker and the foreman's end of a connection: which tasks are its own and where they are, how much
 * room it has, what it is still to be told. The session does the telling, in the order of its protocol.
 */
import { now } from "../../../base/clock.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import type { TasksOf, WorkerProfile } from "../../../dispatch/index.js";
import { type Attempt, JobId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { COUNT_LIMIT, type Hello, type Ok, type TaskPair, type Update } from "../messages.js";
import { toFuqTask } from "./fuq-task.js";
import { type AssignedTask, AssignedTaskMap, taskIndex, isInRanges, rangeOf } from "./assigned-task-map.js";
import { SlotCapacity } from "./slot-capacity.js";
import { outcomeOf, startTimeOf } from "./task-outcome.js";

export interface AssignedTasksOptions {
  readonly core: Core;
  /** The session, as the core knows it. */
  readonly port: WorkerPort;
  /** There is something to tell the worker. */
  readonly onPending: () => void;
  /** How long the UPDATE of a task is waited for that the worker does not have any more. */
  readonly missingMs: number;
}

export type FuqWorkerProfile = Pick<
  WorkerProfile,
  "id" | "session" | "name" | "tags" | "resumable" | "protocol" | "pool" | "address" | "graceMs"
>;

const LONGEST_TIMER_MS = 2 ** 31 - 1;

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
    const nproc = Math.min(COUNT_LIMIT, this.capacity.freeSlots(this.#tasks));
    return { nproc, nrun: Math.min(COUNT_LIMIT, this.#tasks.usedSlots) };
  }

  /** It gets nothing until its first HELLO is reconciled. */
  async join(profile: FuqWorkerProfile): Promise<void> {
    // What an older connection does yet would be done to the same tasks.
    this.#core.portOf(profile.id)?.close("another connection of this worker took over");
    const known = await this.#core.claimedBy(profile.id);
    if (this.#closed) return;
    for (const { job, first, last, attempt } of known) {
      for (let index = first; index <= last; index++) {
        const since = startTimeOf(this.#core, profile.id, job, index);
        this.#tasks.add({ jobId: job, task: index + 1, attempt, state: "running", since, timedOut: false });
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
    const holding = known.map((tasks) => ({ ...tasks, state: "running" as const }));
    await this.#core.workerJoins(this.#profile, holding, this.#options.port);
    if (this.#closed) this.#core.workerDisconnected(profile.id, this.#options.port, false);
  }

  /** Nothing more is told or heard, whether or not the connection is gone already. What was not sent waits for others. */
  close(): void {
    if (this.#closed) return;
    this.capacity.pause();
    this.#returnTasks(this.#takeUnsent());
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

  /** Nothing more will be heard of its tasks: they wait for others. */
  returnAll(): void {
    this.capacity.pause();
    this.#returnTasks(this.#tasks.all().filter(({ state }) => state !== "foreign"));
  }

  /** It was told to stop: its end is no loss. */
  markLeaving(): void {
    this.#leaving = true;
    this.#returnTasks(this.#takeUnsent());
  }

  // What the broker wants

  assign(job: Job, { first, last, attempt }: TasksOf): void {
    const back: AssignedTask[] = [];
    for (let index = first; index <= last; index++) {
      const described = toFuqTask(job, index);
      const held = this.#tasks.add({
        jobId: job.id,
        task: index + 1,
        attempt,
        state: "unsent",
        since: now(),
        timedOut: false,
        ...(described === undefined ? {} : { description: described }),
      });
      if (described === undefined || !this.#mayTake) back.push(held);
      else this.#unsent.push(held);
    }
    if (back.length > 0) this.#returnTasks(back);
    this.publishSlots();
    this.#options.onPending();
  }

  /** What was decided when there was room may come when there is none. */
  get #mayTake(): boolean {
    return !this.#leaving && !this.#closed && this.capacity.fits(this.#tasks);
  }

  retract(tasks: readonly TasksOf[]): void {
    const asked = this.#unsent.filter((held) => isInRanges(held, tasks));
    this.#unsent = this.#unsent.filter((held) => !asked.includes(held));
    this.#returnTasks(asked);
  }

  cancel(tasks: readonly TasksOf[]): void {
    this.retract(tasks);
    for (const held of this.#tasks.all()) {
      if ((held.state === "sent" || held.state === "running") && isInRanges(held, tasks)) this.#toCancel.add(held);
    }
    this.#options.onPending();
  }

  drain(): void {
    this.#returnTasks(this.#takeUnsent());
  }

  // What is to be told

  /** The next task, which is now on its way. */
  nextUnsent(): AssignedTask | undefined {
    const held = this.#unsent.shift();
    if (held === undefined) return undefined;
    // It may have been handed out anew meanwhile, and stands there again.
    if (!this.#tasks.has(held)) return this.nextUnsent();
    this.#tasks.setState(held, "sent");
    return held;
  }

  takeCancels(): readonly AssignedTask[] {
    const gone = [...this.#toCancel];
    this.#toCancel.clear();
    return gone;
  }

  /** These tasks for a CANCEL. */
  cancelPairs(gone: readonly AssignedTask[]): readonly TaskPair[] {
    return this.#tasks.cancelPairs(gone);
  }

  // What the worker says

  /** It has begun with it. */
  started(held: AssignedTask): void {
    if (this.#tasks.has(held) && held.state === "sent" && this.#profile !== undefined) {
      this.#tasks.setState(held, "running");
      held.since = now();
      const { job, attempt } = rangeOf(held);
      this.#core.workerStarted(this.#profile.id, [{ job, index: taskIndex(held), attempt }]);
      this.#watchLimit(held);
    }
    this.publishSlots();
  }

  /** It goes back to the line with what was to follow it, and the worker is left alone for a moment. It has cost nothing. */
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

  /** `recorded` is called when the result is durable, or known to be nobody's. */
  updated(update: Update, recorded: () => void): void {
    const held = this.#tasks.get(update);
    if (this.#profile === undefined || held === undefined || held.state === "unsent") {
      recorded();
      return;
    }
    this.#tasks.remove(held);
    this.#toCancel.delete(held);
    this.publishSlots();
    if (held.state === "foreign") recorded();
    else this.#record(held, update, recorded);
  }

  /** What the worker lists against what it is known to have. Without a list nothing runs, and nothing is said of slots. */
  reconcileHello(hello: Hello | undefined): void {
    const running = (hello?.running ?? []).map(({ task, job }) => ({ jobId: job.jobId, task }));
    if (hello !== undefined) this.capacity.slots = hello.numProcs + running.length;
    else if (this.capacity.slots === 0) this.capacity.guess();
    this.#compare(running);
  }

  /** The same where it says only how many it has. Whether that tells which: all that it is known to have, or none. */
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
    const attempt = this.#reclaim(pair);
    const state = attempt === undefined ? "foreign" : "running";
    const held = this.#tasks.add({ ...pair, attempt: attempt ?? 0, state, since: now(), timedOut: false });
    if (attempt === undefined) this.#toCancel.add(held);
    else this.#watchLimit(held);
    return held;
  }

  #reclaim({ jobId, task }: TaskPair): Attempt | undefined {
    if (task < 1 || this.#profile === undefined) return undefined;
    return this.#core.reclaim(this.#profile.id, JobId(jobId), task - 1);
  }

  /** Its UPDATE is waited for so long; then it is put right without. */
  settleAfter(held: AssignedTask, ms: number): void {
    if (!this.#tasks.has(held)) return;
    clearTimeout(held.settleTimer);
    held.settleTimer = setTimeout(() => {
      if (held.state === "foreign") this.#tasks.remove(held);
      else if (held.timedOut) {
        this.#tasks.remove(held);
        this.#record(held, { success: false, status: "" }, () => {});
      } else this.#returnTasks([held]);
      this.publishSlots();
    }, ms);
  }

  /** Tells the broker how much room there is. */
  publishSlots(): void {
    const slots = this.capacity.total(this.#tasks);
    if (this.#profile === undefined || this.#closed || this.#profile.total.slots === slots) return;
    this.#profile = { ...this.#profile, total: { slots }, ...remarkOn(this.capacity.withheld) };
    this.#core.workerChanged(this.#profile);
  }

  #record(held: AssignedTask, update: Pick<Update, "success" | "status">, recorded: () => void): void {
    if (this.#profile !== undefined) this.#core.workerDone(this.#profile.id, [outcomeOf(held, update)], recorded);
  }

  #takeUnsent(): readonly AssignedTask[] {
    return this.#unsent.splice(0);
  }

  #returnTasks(held: readonly AssignedTask[]): void {
    for (const one of held) this.#tasks.remove(one);
    // First the room, or it would be filled at once with what was just given back.
    this.publishSlots();
    if (this.#profile !== undefined) this.#core.workerRetracted(this.#profile.id, held.map(rangeOf));
  }

  /** fuq knows no time limits: the foreman cancels what takes too long. */
  #watchLimit(held: AssignedTask): void {
    const limitMs = this.#core.state.jobs.get(JobId(held.jobId))?.job.limits.timeLimitMs;
    clearTimeout(held.limitTimer);
    if (limitMs === undefined || held.timedOut) return;
    const leftMs = held.since + limitMs - now();
    held.limitTimer = setTimeout(
      () => {
        if (leftMs > LONGEST_TIMER_MS) return this.#watchLimit(held);
        held.timedOut = true;
        this.#toCancel.add(held);
        this.#options.onPending();
      },
      Math.min(LONGEST_TIMER_MS, Math.max(0, leftMs)),
    );
  }
}

/** For `explain`: by the letter of the text a worker's last slot stays free. */
const remarkOn = (withheld: number): Pick<WorkerProfile, "remark"> =>
  withheld === 0
    ? {}
    : { remark: `refuses tasks while it says that it has a slot free, so ${withheld} of its slots is left alone` };
