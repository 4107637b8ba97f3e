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
  type AttemptRange,
  type TaskRef,
  type ToWorker,
  type Welcome,
} from "../protocols/laboro/messages.js";
import type { JobFiles } from "./job-files.js";
import { attemptKey, OutputSender } from "./output-sender.js";
import { ResultReporter } from "./result-reporter.js";
import { TaskTracker, type PrefetchedTask } from "./task-tracker.js";
import type { Lifetime } from "./lifetime.js";
import type { MemoryWatch } from "./memory.js";
import type { Slots } from "./processes/index.js";
import type { AcquiredSlot, Capacity } from "./capacity.js";
import type { Services } from "./services.js";
import type { WorkerDirectory } from "./spool/worker-directory.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import { OutputBuffer } from "./spool/output-buffer.js";
import { type RunHandle, type RunEnd, TaskRunner } from "./task-runner.js";
import { LifetimeFilter } from "./lifetime-filter.js";

export interface WorkerDependencies {
  readonly directory: WorkerDirectory;
  readonly spool: ResultSpool;
  readonly slots: Slots;
  readonly files: JobFiles;
  readonly services: Services;
  readonly capacity: Capacity;
  /** Tasks start only while it has enough. */
  readonly memory?: MemoryWatch;
  /** When the worker leaves: what may run longer is not begun. */
  readonly lifetime?: Lifetime;
  readonly log: Log;
  readonly now: () => number;
}

interface RunningAttempt {
  readonly task: TaskRef;
  readonly run: RunHandle;
  readonly acquired: AcquiredSlot;
  /** Its end is reported, is of no interest (struck), or is told as given back (the worker leaves). */
  endAction: "report" | "drop" | "return";
}

type Send = (message: FromWorker) => void;

/** Jobs whose recipe is remembered: twice what the broker counts on. */
const MAX_RECIPES = 2 * RECIPES_REMEMBERED;

/** How long ends may wait for others while there is stock, and how many. */
const BATCH_DELAY_MS = 10;
const MAX_BATCHED_RESULTS = 64;

export class WorkerTasks {
  readonly #deps: WorkerDependencies;
  readonly #cancelGraceMs: number;
  readonly #tracker = new TaskTracker();
  readonly #outputSender: OutputSender;
  readonly #runner: TaskRunner;
  readonly #resultReporter: ResultReporter;
  readonly #recipes = new Map<JobId, JobRecipe>();
  readonly #running = new Map<string, RunningAttempt>();
  #send: Send | undefined;
  #closing = false;
  #started: TaskRef[] = [];
  #flushScheduled = false;
  #batchTimer: NodeJS.Timeout | undefined;
  #watchers: (() => void)[] = [];
  readonly #onChange: () => void;
  readonly #lifetimeFilter: LifetimeFilter | undefined;

  /** `changed` is called when a task has ended, was delivered, or the link went down. */
  constructor(
    deps: WorkerDependencies,
    cancelGraceMs: number,
    spooled: readonly UnacknowledgedResult[],
    onChange: () => void = () => {},
  ) {
    this.#deps = deps;
    this.#cancelGraceMs = cancelGraceMs;
    this.#onChange = onChange;
    this.#runner = new TaskRunner(deps.slots, deps.files, deps.services, deps.log, deps.now);
    this.#outputSender = new OutputSender(
      deps.directory.outputDirectory,
      ({ error }) => deps.log.warn({ code: error.code }, `output is lost here: ${error.message}`),
      () => this.#scheduleFlush(),
    );
    const { lifetime } = deps;
    if (lifetime !== undefined) {
      this.#lifetimeFilter = new LifetimeFilter({
        lifetime,
        timeLimitOf: (job) => this.#recipes.get(job)?.limits.timeLimitMs,
        takeTasks: (ofJob) => this.#tracker.takeRanges(ofJob),
        returnTasks: (tasks) => this.#returnTasks(tasks),
      });
    }
    this.#resultReporter = new ResultReporter(deps, this.#tracker, this.#outputSender, () => this.#scheduleFlush());
    for (const one of spooled) this.#resultReporter.resume(one);
  }

  get idle(): boolean {
    return this.#tracker.idle && this.#running.size === 0;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  held(): HeldTasks[] {
    return this.#tracker.held();
  }

  // What the broker says

  /** A broker has welcomed this worker: what it struck goes, what it does not have is sent again. */
  resume(welcome: Welcome, send: Send): void {
    this.#send = send;
    for (const task of this.#tracker.drop(welcome.drop)) this.#drop(task);
    for (const { job, first, last, attempt } of welcome.drop) {
      for (let index = first; index <= last; index++) this.#delivered({ job, index, attempt });
    }
    for (const batch of this.#tracker.unacknowledged()) send({ type: "DONE", ...batch });
    this.#outputSender.resume(welcome.keep, welcome.window, send);
    if (this.#closing) this.returnPrefetched();
  }

  pause(): void {
    this.#send = undefined;
    this.#outputSender.pause();
    this.#notifyWatchers();
  }

  /** The broker repeats a recipe that is not among the last it sent, so old ones may go when nothing here is of them. */
  addRecipe(recipe: JobRecipe): void {
    this.#recipes.delete(recipe.job);
    this.#recipes.set(recipe.job, recipe);
    if (this.#recipes.size <= MAX_RECIPES) return;
    const inUse = this.#tracker.jobs();
    for (const job of this.#recipes.keys()) {
      if (this.#recipes.size <= MAX_RECIPES) return;
      if (inUse.has(job)) continue;
      this.#recipes.delete(job);
      this.#deps.files.forget(job);
    }
  }

  receive(tasks: Extract<ToWorker, { type: "TASKS" }>): void {
    this.#tracker.receive(tasks, tasks.entries);
  }

  acknowledge(seq: number): void {
    for (const { tasks } of this.#tracker.acknowledge(seq)) for (const task of tasks) this.#delivered(task);
  }

  credit(bytes: number): void {
    this.#outputSender.credit(bytes);
  }

  retract(tasks: readonly AttemptRange[]): void {
    this.#send?.({ type: "RETRACTED", tasks: this.#tracker.removePrefetched(tasks) });
  }

  /** Stocked ones go at once; of those that run the end follows, as DONE. */
  cancel(tasks: readonly AttemptRange[]): void {
    const unstarted = this.#tracker.removePrefetched(tasks);
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
    if (this.#closing) this.returnPrefetched();
    if (!this.#closing) {
      this.#finishNoops();
      this.#lifetimeFilter?.returnTooLong();
      let memoryLow = false;
      const fits = (job: JobId): boolean => {
        const recipe = this.#recipes.get(job);
        if (memoryLow || recipe === undefined || !this.#deps.capacity.fits(recipe.needs)) return false;
        if (this.#lifetimeFilter?.exceeds(job) === true) return false;
        memoryLow = this.#deps.memory?.hasEnough() === false;
        return !memoryLow;
      };
      for (let task = this.#tracker.startNext(fits); task !== undefined; task = this.#tracker.startNext(fits)) this.#start(task);
    }
    this.#scheduleFlush();
  }

  // The end

  /** Nothing new is started from here on. */
  beginClosing(): void {
    this.#closing = true;
    this.returnPrefetched();
  }

  returnPrefetched(): void {
    if (this.#send !== undefined) this.#returnTasks(this.#tracker.removeAllPrefetched());
  }

  /** What runs is stopped and goes back to the queue. */
  returnRunning(graceMs: number): void {
    for (const running of this.#running.values()) {
      running.endAction = "return";
      running.run.stop(graceMs);
    }
  }

  /** Resolves when `reached` holds; it is looked at whenever a task ends, is acknowledged, or the link goes down. */
  async waitUntil(reached: () => boolean): Promise<void> {
    while (!reached()) await new Promise<void>((resolve) => this.#watchers.push(resolve));
  }

  close(): void {
    clearTimeout(this.#batchTimer);
    this.#lifetimeFilter?.stop();
    this.#send = undefined;
    this.#outputSender.close();
  }

  #notifyWatchers(): void {
    for (const resolve of this.#watchers.splice(0)) resolve();
    this.#onChange();
  }

  // The life of a task

  /** Nothing to run: they are done when they arrive. */
  #finishNoops(): void {
    const ranges = this.#tracker.takeRanges((job) => this.#recipes.get(job)?.recipe.kind === "noop");
    const at = this.#deps.now();
    for (const { job, first, last, attempt } of ranges) {
      const done: DoneTask[] = [];
      for (let index = first; index <= last; index++) {
        done.push({ job, index, attempt, code: 0, started: at, ended: at, outputBytes: 0 });
      }
      this.#tracker.addFinished(done);
    }
  }

  #start(prefetched: PrefetchedTask): void {
    const recipe = this.#recipes.get(prefetched.job);
    if (recipe === undefined) return;
    const task: TaskRef = { job: prefetched.job, index: prefetched.index, attempt: prefetched.attempt };
    const acquired = this.#deps.capacity.acquire(recipe.needs);
    const run = this.#runner.run(prefetched, recipe, acquired, {
      output: (stream, bytes) => {
        if (this.#outputSender.outputOf(task) === undefined) {
          const settings = this.#outputSender.settingsFor(task, recipe.limits.outputCap);
          this.#outputSender.add(task, new OutputBuffer(settings), () => {});
        }
        this.#outputSender.write(task, stream, bytes);
      },
      ended: (end) => this.#ended(task, end),
    });
    this.#running.set(attemptKey(task), { task, run, acquired, endAction: "report" });
    this.#started.push(task);
  }

  #ended(task: TaskRef, end: RunEnd): void {
    const running = this.#running.get(attemptKey(task));
    if (running === undefined) return;
    this.#running.delete(attemptKey(task));
    this.#deps.capacity.release(running.acquired);
    if (running.endAction === "report") this.#resultReporter.report(task, end);
    else this.#outputSender.discard(task);
    if (running.endAction === "return") {
      const range = { job: task.job, attempt: task.attempt, first: task.index, last: task.index };
      this.#tracker.drop([range]);
      this.#returnTasks([range]);
    }
    this.pump();
    this.#notifyWatchers();
  }

  /** The broker has it, or nobody wants it. */
  #delivered(task: TaskRef): void {
    this.#resultReporter.acknowledge(task);
    if (this.#tracker.idle) this.#notifyWatchers();
  }

  /** It is another's now. */
  #drop(task: TaskRef): void {
    const running = this.#running.get(attemptKey(task));
    if (running === undefined) return;
    running.endAction = "drop";
    running.run.stop(this.#cancelGraceMs);
  }

  #returnTasks(tasks: readonly AttemptRange[]): void {
    if (tasks.length > 0) this.#send?.({ type: "RETRACTED", tasks });
  }

  // Telling

  /** At the end of this turn: one STARTED and one DONE for all that happened in it. */
  #scheduleFlush(): void {
    if (this.#flushScheduled) return;
    this.#flushScheduled = true;
    queueMicrotask(() => {
      this.#flushScheduled = false;
      this.#flush();
    });
  }

  /**
   * While there is stock the broker need not hear of each short task: a few ends together cost it one commit instead of many. Stock is
   * there only where tasks are known to be short, so what a start or an end waits here is short as well.
   */
  #flush(): void {
    if (this.#send === undefined) return;
    const { prefetchedCount: stockCount, finishedCount: endedCount } = this.#tracker;
    if (stockCount > 0 && endedCount < MAX_BATCHED_RESULTS && !this.#closing) {
      this.#batchTimer ??= setTimeout(() => this.#sendBatch(), BATCH_DELAY_MS);
      return;
    }
    this.#sendBatch();
  }

  #sendBatch(): void {
    clearTimeout(this.#batchTimer);
    this.#batchTimer = undefined;
    if (this.#send === undefined) return;
    // Output first: a DONE follows the last of its own, and goes in the same turn.
    this.#outputSender.pump();
    const started = this.#started.filter((task) => this.#tracker.isRunning(task));
    this.#started = [];
    if (started.length > 0) this.#send({ type: "STARTED", tasks: started });
    const batch = this.#tracker.nextBatch();
    if (batch !== undefined) this.#send({ type: "DONE", ...batch });
  }
}
