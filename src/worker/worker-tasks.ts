/**
 * The tasks of a worker, from their arrival to the acknowledgement of their results, independent of the link.
 *
 * The tracker knows the state of each task (prefetched, running, finished). DONE follows the last OUTPUT of its task: a
 * task whose process has ended counts as running until all of its output is sent.
 */
import { LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { JobId } from "../model/ids.js";
import type {
  AttemptRange,
  FromWorker,
  HeldTasks,
  JobRecipe,
  TakenOutput,
  TaskRef,
  ToWorker,
  Welcome,
} from "../protocols/laboro/messages.js";
import type { AcquiredSlot, Capacity } from "./capacity.js";
import type { HandlerMessages } from "./handler-messages.js";
import type { JobFiles } from "./job-files.js";
import { type Lifetime, LifetimeFilter } from "./lifetime.js";
import type { MemoryWatch } from "./machine.js";
import { type AttemptOutput, attemptKey, OutputSender } from "./output-sender.js";
import type { Slots } from "./processes/index.js";
import { Recipes } from "./recipes.js";
import { ResultReporter } from "./result-reporter.js";
import { type Services, workerStops } from "./services.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import type { WorkerDirectory } from "./spool/worker-directory.js";
import type { OnTaskEnded } from "./task-end.js";
import type { TaskFolders } from "./task-folders.js";
import { type RunEnd, type RunHandle, TaskRunner, wasKilled } from "./task-runner.js";
import { type PrefetchedTask, TaskTracker } from "./task-tracker.js";

export interface WorkerDependencies {
  readonly directory: WorkerDirectory;
  /** Absent where worker and broker are one process. */
  readonly spool?: ResultSpool;
  readonly slots: Slots;
  readonly files: JobFiles;
  readonly folders: TaskFolders;
  readonly services: Services;
  readonly capacity: Capacity;
  /** Tasks start only while enough memory is available. Otherwise they are returned. */
  readonly memory?: MemoryWatch;
  /** When the worker stops. Tasks that may run longer are not started. */
  readonly lifetime?: Lifetime;
  readonly onTaskEnded?: OnTaskEnded;
  readonly log: Log;
  readonly now: () => number;
}

interface RunningAttempt {
  readonly task: TaskRef;
  readonly run: RunHandle;
  readonly acquired: AcquiredSlot;
  readonly output: AttemptOutput;
  /** After an abort, a handler that succeeds has done its work. A process that exits with 0 may be interrupted. */
  readonly isCall: boolean;
  /** At its end: report the result, drop it (the broker dropped the task), or return the task (the worker leaves). */
  endAction: "report" | "drop" | "return";
  cancelled?: true;
}

type Send = (message: FromWorker) => void;

/** How long results are batched while there are prefetched tasks, and how many at most. */
const BATCH_DELAY_MS = 10;
const MAX_BATCHED_RESULTS = 64;

export class WorkerTasks {
  readonly #deps: WorkerDependencies;
  readonly #cancelGraceMs: number;
  readonly #handlerMessages: HandlerMessages;
  readonly #tracker = new TaskTracker();
  readonly #outputSender: OutputSender;
  readonly #runner: TaskRunner;
  readonly #resultReporter: ResultReporter;
  readonly #recipes: Recipes;
  /** How many tasks of a job may run here at once, if the broker has limited it. */
  readonly #atOnce = new Map<JobId, number>();
  /** Includes dropped attempts until their process ends. After a restore, the same attempt may run beside one. */
  readonly #running = new Set<RunningAttempt>();
  #send: Send | undefined;
  #closing = false;
  #started: TaskRef[] = [];
  #flushScheduled = false;
  #batchTimer: NodeJS.Timeout | undefined;
  #watchers: (() => void)[] = [];
  readonly #onChange: () => void;
  readonly #lifetimeFilter: LifetimeFilter | undefined;

  /** `onChange` is called when a task has ended, was delivered, or the link went down. */
  constructor(
    deps: WorkerDependencies,
    handlerMessages: HandlerMessages,
    cancelGraceMs: number,
    spooled: readonly UnacknowledgedResult[],
    onChange: () => void = () => {},
  ) {
    this.#deps = deps;
    this.#recipes = new Recipes(
      () => this.#tracker.jobs(),
      (job) => {
        this.#atOnce.delete(job);
        deps.files.forget(job);
      },
    );
    this.#cancelGraceMs = cancelGraceMs;
    this.#onChange = onChange;
    this.#handlerMessages = handlerMessages;
    const asked = { fetchResults: handlerMessages.fetchResults, fileParts: handlerMessages };
    this.#runner = new TaskRunner({ ...deps, ...asked }, cancelGraceMs);
    this.#outputSender = new OutputSender({
      directory: deps.directory.outputDirectory,
      now: deps.now,
      onLost: ({ error }) => deps.log.warn({ code: error.code }, `output was lost: ${error.message}`),
      onReady: () => this.#scheduleFlush(),
    });
    const { lifetime } = deps;
    if (lifetime !== undefined) {
      this.#lifetimeFilter = new LifetimeFilter({
        lifetime,
        timeNeeded: (job) => {
          const { timeLimitMs, timeRequestMs } = this.#recipes.get(job)?.limits ?? {};
          return timeRequestMs ?? timeLimitMs;
        },
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

  /** Nothing runs, and every result is acknowledged. */
  get allDelivered(): boolean {
    return this.#running.size === 0 && this.#tracker.runningCount === 0 && this.#tracker.undelivered === 0;
  }

  held(): HeldTasks[] {
    return this.#tracker.held();
  }

  // Messages of the broker

  /** WELCOME was received: dropped tasks are stopped. Results without an ACK are sent again, each after its output. */
  resume(welcome: Welcome, send: Send): void {
    this.#send = send;
    for (const task of this.#tracker.drop(welcome.drop)) this.#drop(task);
    for (const { job, first, last, attempt } of welcome.drop) {
      for (let index = first; index <= last; index++) this.#delivered({ job, index, attempt });
    }
    for (const done of this.#tracker.reopen()) this.#resultReporter.deliver(done);
    this.#outputSender.resume(welcome.keep, welcome.window, send);
    if (this.#closing) this.returnPrefetched();
  }

  pause(): void {
    this.#send = undefined;
    this.#outputSender.pause();
    this.notifyWatchers();
  }

  addRecipe(recipe: JobRecipe): void {
    this.#recipes.add(recipe);
  }

  receive(tasks: Extract<ToWorker, { type: "TASKS" }>): void {
    this.#tracker.receive(tasks, tasks.entries, this.#recipes.get(tasks.job)?.acceptedBy);
    if (tasks.atOnce !== undefined) this.#atOnce.set(tasks.job, tasks.atOnce);
  }

  acknowledge(seq: number): void {
    for (const { tasks } of this.#tracker.acknowledge(seq)) for (const task of tasks) this.#delivered(task);
  }

  credit(bytes: number): void {
    this.#outputSender.credit(bytes);
  }

  relayed(taken: TakenOutput): void {
    this.#outputSender.relayed(taken);
  }

  retract(tasks: readonly AttemptRange[]): void {
    this.#send?.({ type: "RETRACTED", tasks: this.#tracker.removePrefetched(tasks) });
  }

  /** Prefetched tasks are cancelled at once. Running ones are stopped; their DONE follows. */
  cancel(tasks: readonly AttemptRange[]): void {
    const unstarted = this.#tracker.removePrefetched(tasks);
    if (unstarted.length > 0) this.#send?.({ type: "CANCELLED", tasks: unstarted });
    for (const running of this.#running) {
      const { task } = running;
      const named = tasks.some(
        ({ job, attempt, first, last }) =>
          job === task.job && attempt === task.attempt && first <= task.index && task.index <= last,
      );
      if (!named) continue;
      running.cancelled = true;
      running.run.stop(this.#cancelGraceMs, new LaboroError("LABORO_TASK_CANCELLED", "the task was cancelled"));
    }
  }

  /** Starts the tasks that fit, and schedules the messages about them. */
  pump(): void {
    // Some may have been on their way when LEAVING was sent.
    if (this.#closing) this.returnPrefetched();
    if (!this.#closing) {
      this.#lifetimeFilter?.returnTooLong();
      const { memory, capacity } = this.#deps;
      let enough = memory?.shortage === undefined || memory.hasEnough();
      const fits = (job: JobId): boolean => {
        const recipe = this.#recipes.get(job);
        if (!enough || recipe === undefined || !capacity.fits(recipe.needs)) return false;
        if (!this.#mayRunMore(job)) return false;
        if (this.#lifetimeFilter?.exceeds(job) === true) return false;
        enough = memory?.hasEnough() !== false;
        return enough;
      };
      while (capacity.hasFreeSlot) {
        const task = this.#tracker.startNext(fits);
        if (task === undefined) break;
        memory?.taskStarted();
        this.#start(task);
      }
      if (!enough) this.returnPrefetched();
    }
    this.#scheduleFlush();
  }

  #mayRunMore(job: JobId): boolean {
    const atOnce = this.#atOnce.get(job);
    if (atOnce === undefined) return true;
    let running = 0;
    for (const { task } of this.#running) if (task.job === job) running++;
    return running < atOnce;
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

  /** Stops running tasks and returns them to the queue. */
  returnRunning(graceMs: number): void {
    for (const running of this.#running) {
      if (running.endAction === "report") running.endAction = "return";
      running.run.stop(graceMs, workerStops());
    }
  }

  /** Resolves when `reached` holds. It is checked whenever a task ends, is acknowledged, or the link goes down. */
  async waitUntil(reached: () => boolean): Promise<void> {
    while (!reached()) await new Promise<void>((resolve) => this.#watchers.push(resolve));
  }

  /** What is not acknowledged is in the spool afterwards. */
  async close(): Promise<void> {
    clearTimeout(this.#batchTimer);
    this.#lifetimeFilter?.stop();
    this.#send = undefined;
    await this.#resultReporter.spoolAll();
    this.#outputSender.close();
  }

  /** Checks again what `waitUntil` waits for. */
  notifyWatchers(): void {
    for (const resolve of this.#watchers.splice(0)) resolve();
    this.#onChange();
  }

  // One task

  #start(prefetched: PrefetchedTask): void {
    const recipe = this.#recipes.get(prefetched.job);
    if (recipe === undefined) return;
    const { entry: _, ...task } = prefetched;
    const acquired = this.#deps.capacity.acquire(recipe.needs);
    const run = this.#runner.run(prefetched, recipe, acquired, {
      output: (stream, bytes) => {
        if (running.endAction !== "drop") this.#outputSender.write(running.output, stream, bytes);
      },
      progress: (value) => {
        if (this.#running.has(running)) this.#handlerMessages.progress(task, value);
      },
      ended: (end) => this.#ended(running, end),
    });
    const { outputCap, relay } = recipe.limits;
    const output = this.#outputSender.begin(task, outputCap, relay === true ? run : undefined);
    const isCall = recipe.recipe.kind === "call";
    const running: RunningAttempt = { task, run, acquired, output, isCall, endAction: "report" };
    this.#running.add(running);
    this.#started.push(task);
  }

  #ended(running: RunningAttempt, end: RunEnd): void {
    const { task, acquired, output, isCall } = running;
    if (!this.#running.delete(running)) return;
    this.#deps.capacity.release(acquired);
    const finished = isCall && end.code === 0 && running.endAction === "return";
    // A batch system or a service manager that ends the worker has killed the task, too.
    const reported = running.endAction === "report" && !isCall && !running.cancelled && !end.timedOut;
    const killed = this.#closing && reported && wasKilled(end);
    const endAction = finished ? "report" : killed ? "return" : running.endAction;
    if (isCall) this.#handlerMessages.ended(task);
    if (endAction === "report") {
      this.#resultReporter.report(task, end, output);
      this.#deps.onTaskEnded?.(task, this.#recipes.get(task.job), end);
    } else this.#outputSender.end(output);
    if (endAction === "return") {
      this.#outputSender.discard(task);
      const range = { job: task.job, attempt: task.attempt, first: task.index, last: task.index };
      this.#tracker.drop([range]);
      this.#returnTasks([range]);
    }
    this.pump();
    this.notifyWatchers();
  }

  /** The result is acknowledged, or was dropped. */
  #delivered(task: TaskRef): void {
    this.#resultReporter.acknowledge(task);
    if (this.allDelivered) this.notifyWatchers();
  }

  /** The broker has assigned the task to another worker. */
  #drop(task: TaskRef): void {
    for (const running of this.#running) {
      if (running.endAction === "drop" || attemptKey(running.task) !== attemptKey(task)) continue;
      running.endAction = "drop";
      this.#outputSender.drop(running.output);
      const why = "the broker has given the task to another worker";
      running.run.stop(this.#cancelGraceMs, new LaboroError("LABORO_TASK_CANCELLED", why));
    }
  }

  #returnTasks(tasks: readonly AttemptRange[]): void {
    if (tasks.length > 0) this.#send?.({ type: "RETRACTED", tasks });
  }

  // Sending

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
   * While there are prefetched tasks, results are batched: a few together cost the broker one commit instead of many.
   * Only short tasks are prefetched, so this delay is short as well.
   */
  #flush(): void {
    if (this.#send === undefined) return;
    const { prefetchedCount, finishedCount } = this.#tracker;
    if (prefetchedCount > 0 && finishedCount < MAX_BATCHED_RESULTS && !this.#closing) {
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
    for (let batch = this.#tracker.nextBatch(); batch !== undefined; batch = this.#tracker.nextBatch())
      this.#send({ type: "DONE", ...batch });
  }
}
