/**
 * The tasks of a worker, from their arrival to the acknowledgement of their results, whatever the link does meanwhile.
 *
 * A task passes through the ledger (stock, running, finished). Between the end of its process and its DONE stands its output:
 * DONE follows the last OUTPUT, so until that is sent the task counts as running.
 */
import type { Log } from "../base/log.js";
import type { JobId } from "../model/ids.js";
import {
  type DoneTask,
  type FromWorker,
  type HeldTasks,
  type JobRecipe,
  RECIPES_REMEMBERED,
  type TaskRange,
  type TaskRef,
  type ToWorker,
  type Welcome,
} from "../protocols/laboro/messages.js";
import type { JobFiles } from "./command-of.js";
import { attemptKey, Deliveries } from "./deliveries.js";
import { Endings } from "./endings.js";
import { Ledger, type StockedTask } from "./ledger.js";
import type { Lifetime } from "./lifetime.js";
import type { MemoryWatch } from "./memory.js";
import type { Slots } from "./processes/index.js";
import type { Place, Room } from "./room.js";
import type { Services } from "./services.js";
import type { WorkerDirectory } from "./spool/identity.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import { TaskOutput } from "./spool/task-output.js";
import { type Run, type RunEnd, TaskRunner } from "./task-runner.js";
import { TooLong } from "./too-long.js";

export interface DeskParts {
  readonly directory: WorkerDirectory;
  readonly spool: ResultSpool;
  readonly slots: Slots;
  readonly files: JobFiles;
  readonly services: Services;
  readonly room: Room;
  /** Tasks start only while it has enough. */
  readonly memory?: MemoryWatch;
  /** When the worker leaves: what may run longer is not begun. */
  readonly lifetime?: Lifetime;
  readonly log: Log;
  readonly now: () => number;
}

interface Running {
  readonly task: TaskRef;
  readonly run: Run;
  readonly place: Place;
  /** Its end is reported, is of no interest (struck), or is told as given back (the worker leaves). */
  fate: "report" | "drop" | "return";
}

type Send = (message: FromWorker) => void;

/** Jobs whose recipe is remembered: twice what the broker counts on. */
const RECIPES_KEPT = 2 * RECIPES_REMEMBERED;

/** How long ends may wait for others while there is stock, and how many. */
const HOLD_BACK_MS = 10;
const MOST_HELD_BACK = 64;

export class Desk {
  readonly #parts: DeskParts;
  readonly #cancelGraceMs: number;
  readonly #ledger = new Ledger();
  readonly #deliveries: Deliveries;
  readonly #runner: TaskRunner;
  readonly #endings: Endings;
  readonly #recipes = new Map<JobId, JobRecipe>();
  readonly #running = new Map<string, Running>();
  #send: Send | undefined;
  #closing = false;
  #started: TaskRef[] = [];
  #flushing = false;
  #late: NodeJS.Timeout | undefined;
  #watchers: (() => void)[] = [];
  readonly #changed: () => void;
  readonly #tooLong: TooLong | undefined;

  /** `changed` is called when a task has ended, was delivered, or the link went down. */
  constructor(
    parts: DeskParts,
    cancelGraceMs: number,
    spooled: readonly UnacknowledgedResult[],
    changed: () => void = () => {},
  ) {
    this.#parts = parts;
    this.#cancelGraceMs = cancelGraceMs;
    this.#changed = changed;
    this.#runner = new TaskRunner(parts.slots, parts.files, parts.services, parts.log, parts.now);
    this.#deliveries = new Deliveries(
      parts.directory.outputDirectory,
      ({ error }) => parts.log.warn({ code: error.code }, `output is lost here: ${error.message}`),
      () => this.#flushSoon(),
    );
    const { lifetime } = parts;
    if (lifetime !== undefined) {
      this.#tooLong = new TooLong({
        lifetime,
        limitOf: (job) => this.#recipes.get(job)?.limits.timeLimitMs,
        take: (ofJob) => this.#ledger.takeStretches(ofJob),
        giveBack: (tasks) => this.#giveBack(tasks),
      });
    }
    this.#endings = new Endings(parts, this.#ledger, this.#deliveries, () => this.#flushSoon());
    for (const one of spooled) this.#endings.takeUp(one);
  }

  get idle(): boolean {
    return this.#ledger.idle && this.#running.size === 0;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  held(): HeldTasks[] {
    return this.#ledger.held();
  }

  // What the broker says

  /** A broker has welcomed this worker: what it struck goes, what it does not have is sent again. */
  resume(welcome: Welcome, send: Send): void {
    this.#send = send;
    for (const task of this.#ledger.strike(welcome.drop)) this.#drop(task);
    for (const { job, first, last, attempt } of welcome.drop) {
      for (let index = first; index <= last; index++) this.#delivered({ job, index, attempt });
    }
    for (const batch of this.#ledger.unacknowledged()) send({ type: "DONE", ...batch });
    this.#deliveries.resume(welcome.keep, welcome.window, send);
    if (this.#closing) this.returnStock();
  }

  pause(): void {
    this.#send = undefined;
    this.#deliveries.pause();
    this.#tellWatchers();
  }

  /** The broker repeats a recipe that is not among the last it sent, so old ones may go when nothing here is of them. */
  learn(recipe: JobRecipe): void {
    this.#recipes.delete(recipe.job);
    this.#recipes.set(recipe.job, recipe);
    if (this.#recipes.size <= RECIPES_KEPT) return;
    const inUse = this.#ledger.jobs();
    for (const job of this.#recipes.keys()) {
      if (this.#recipes.size <= RECIPES_KEPT) return;
      if (inUse.has(job)) continue;
      this.#recipes.delete(job);
      this.#parts.files.forget(job);
    }
  }

  receive(tasks: Extract<ToWorker, { type: "TASKS" }>): void {
    this.#ledger.receive(tasks, tasks.entries);
  }

  acknowledge(seq: number): void {
    for (const { tasks } of this.#ledger.acknowledge(seq)) for (const task of tasks) this.#delivered(task);
  }

  credit(bytes: number): void {
    this.#deliveries.credit(bytes);
  }

  retract(tasks: readonly TaskRange[]): void {
    this.#send?.({ type: "RETRACTED", tasks: this.#ledger.unstock(tasks) });
  }

  /** Stocked ones go at once; of those that run the end follows, as DONE. */
  cancel(tasks: readonly TaskRange[]): void {
    const unstarted = this.#ledger.unstock(tasks);
    if (unstarted.length > 0) this.#send?.({ type: "CANCELLED", tasks: unstarted });
    for (const { task, run } of this.#running.values()) {
      const named = tasks.some(
        ({ job, attempt, first, last }) =>
          job === task.job && attempt === task.attempt && first <= task.index && task.index <= last,
      );
      if (named) run.stop(this.#cancelGraceMs);
    }
  }

  /** Start what fits, and send what there is to tell. */
  pump(): void {
    // Some may have been under way when this worker said that it leaves.
    if (this.#closing) this.returnStock();
    if (!this.#closing) {
      this.#doNoops();
      this.#tooLong?.giveBack();
      let short = false;
      const fits = (job: JobId): boolean => {
        const recipe = this.#recipes.get(job);
        if (short || recipe === undefined || !this.#parts.room.fits(recipe.needs)) return false;
        if (this.#tooLong?.has(job) === true) return false;
        short = this.#parts.memory?.enough() === false;
        return !short;
      };
      for (let task = this.#ledger.start(fits); task !== undefined; task = this.#ledger.start(fits)) this.#start(task);
    }
    this.#flushSoon();
  }

  // The end

  /** Nothing new is started from here on. */
  beginClosing(): void {
    this.#closing = true;
    this.returnStock();
  }

  returnStock(): void {
    if (this.#send !== undefined) this.#giveBack(this.#ledger.unstockAll());
  }

  /** What runs is stopped and goes back to the queue. */
  returnRunning(graceMs: number): void {
    for (const running of this.#running.values()) {
      running.fate = "return";
      running.run.stop(graceMs);
    }
  }

  /** Resolves when `reached` holds; it is looked at whenever a task ends, is acknowledged, or the link goes down. */
  async until(reached: () => boolean): Promise<void> {
    while (!reached()) await new Promise<void>((resolve) => this.#watchers.push(resolve));
  }

  close(): void {
    clearTimeout(this.#late);
    this.#tooLong?.stop();
    this.#send = undefined;
    this.#deliveries.close();
  }

  #tellWatchers(): void {
    for (const resolve of this.#watchers.splice(0)) resolve();
    this.#changed();
  }

  // The life of a task

  /** Nothing to run: they are done when they arrive. */
  #doNoops(): void {
    const stretches = this.#ledger.takeStretches((job) => this.#recipes.get(job)?.recipe.kind === "noop");
    const at = this.#parts.now();
    for (const { job, first, last, attempt } of stretches) {
      const done: DoneTask[] = [];
      for (let index = first; index <= last; index++) {
        done.push({ job, index, attempt, code: 0, started: at, ended: at, outputEnd: 0 });
      }
      this.#ledger.addFinished(done);
    }
  }

  #start(stocked: StockedTask): void {
    const recipe = this.#recipes.get(stocked.job);
    if (recipe === undefined) return;
    const task: TaskRef = { job: stocked.job, index: stocked.index, attempt: stocked.attempt };
    const place = this.#parts.room.take(recipe.needs);
    const run = this.#runner.run(stocked, recipe, place, {
      output: (stream, bytes) => {
        if (this.#deliveries.of(task) === undefined) {
          const settings = this.#deliveries.settingsFor(task, recipe.limits.outputCap);
          this.#deliveries.open(task, new TaskOutput(settings), () => {});
        }
        this.#deliveries.write(task, stream, bytes);
      },
      ended: (end) => this.#ended(task, end),
    });
    this.#running.set(attemptKey(task), { task, run, place, fate: "report" });
    this.#started.push(task);
  }

  #ended(task: TaskRef, end: RunEnd): void {
    const running = this.#running.get(attemptKey(task));
    if (running === undefined) return;
    this.#running.delete(attemptKey(task));
    this.#parts.room.give(running.place);
    if (running.fate === "report") this.#endings.report(task, end);
    else this.#deliveries.discard(task);
    if (running.fate === "return") {
      const range = { job: task.job, attempt: task.attempt, first: task.index, last: task.index };
      this.#ledger.strike([range]);
      this.#giveBack([range]);
    }
    this.pump();
    this.#tellWatchers();
  }

  /** The broker has it, or nobody wants it. */
  #delivered(task: TaskRef): void {
    this.#endings.delivered(task);
    if (this.#ledger.idle) this.#tellWatchers();
  }

  /** It is another's now. */
  #drop(task: TaskRef): void {
    const running = this.#running.get(attemptKey(task));
    if (running === undefined) return;
    running.fate = "drop";
    running.run.stop(this.#cancelGraceMs);
  }

  #giveBack(tasks: readonly TaskRange[]): void {
    if (tasks.length > 0) this.#send?.({ type: "RETRACTED", tasks });
  }

  // Telling

  /** At the end of this turn: one STARTED and one DONE for all that happened in it. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  /**
   * While there is stock the broker need not hear of each short task: a few ends together cost it one commit instead of many. Stock is
   * there only where tasks are known to be short, so what a start or an end waits here is short as well.
   */
  #flush(): void {
    if (this.#send === undefined) return;
    const { stockCount, endedCount } = this.#ledger;
    if (stockCount > 0 && endedCount < MOST_HELD_BACK && !this.#closing) {
      this.#late ??= setTimeout(() => this.#tell(), HOLD_BACK_MS);
      return;
    }
    this.#tell();
  }

  #tell(): void {
    clearTimeout(this.#late);
    this.#late = undefined;
    if (this.#send === undefined) return;
    // Output first: a DONE follows the last of its own, and goes in the same turn.
    this.#deliveries.pump();
    const started = this.#started.filter((task) => this.#ledger.isRunning(task));
    this.#started = [];
    if (started.length > 0) this.#send({ type: "STARTED", tasks: started });
    const batch = this.#ledger.nextBatch();
    if (batch !== undefined) this.#send({ type: "DONE", ...batch });
  }
}
