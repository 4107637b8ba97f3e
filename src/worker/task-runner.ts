/** Runs one task of any recipe and reports its outcome. */
import { MAX_TIMER_MS } from "../base/clock.js";
import { asLaboroError, badInput, LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { JobId } from "../model/ids.js";
import { MAX_VALUE, type Outcome, type OutputStream } from "../model/outcome.js";
import { type ProcessRecipe, type Recipe, withEntry } from "../model/recipe.js";
import { describeError } from "../model/task-definition.js";
import { taskNumber } from "../model/task-numbers.js";
import type { JobRecipe } from "../protocols/laboro/messages.js";
import type { AcquiredSlot } from "./capacity.js";
import { type JobFiles, LogFile } from "./job-files.js";
import type { Slots } from "./processes/index.js";
import { type CallPort, type ResultsPage, ServiceCall, type ServiceReply, type Services } from "./services.js";
import type { FileParts, TaskFolders } from "./task-folders.js";
import type { PrefetchedTask } from "./task-tracker.js";

/** The outcome without the length of the output, which the receiver of the output knows. */
export type RunEnd = Omit<Outcome, "outputBytes">;

interface RunSink {
  output(stream: OutputStream, bytes: Uint8Array): void;
  /** How far a handler is, as JSON. */
  progress(value: string): void;
  ended(end: RunEnd): void;
}

export interface RunHandle {
  /**
   * SIGTERM, and SIGKILL after the grace: `ended` follows when it is gone. A handler is aborted; `ended` follows after
   * the grace at the latest.
   */
  stop(graceMs: number, reason: LaboroError): void;
  /** Stops reading the task's output, so that it blocks when its pipes are full. */
  pause(): void;
  resume(): void;
}

/**
 * A batch system or service manager that ends a worker also kills its tasks, perhaps first. A task killed by another
 * process ends this much later: if the worker begins to stop meanwhile, the task is returned.
 */
const KILLED_TOGETHER_MS = 250;

/** By the signal itself, or as a shell reports it. */
export const wasKilled = ({ signal = "", code = 0 }: RunEnd): boolean =>
  ["SIGHUP", "SIGKILL", "SIGTERM"].includes(signal) || [129, 137, 143].includes(code);

const NO_PROCESS = { pause: () => {}, resume: () => {} };

/** Reads results of the job `of`, for a task of `job`, which came after it. */
export type FetchResults = (job: JobId, of: number, from: number, limit?: 1) => Promise<ResultsPage>;

interface TaskRunnerDependencies {
  readonly slots: Slots;
  readonly files: JobFiles;
  readonly services: Services;
  readonly fetchResults: FetchResults;
  readonly folders: TaskFolders;
  readonly fileParts: FileParts;
  readonly log: Log;
  readonly now: () => number;
}

export class TaskRunner {
  readonly #slots: Slots;
  readonly #files: JobFiles;
  readonly #services: Services;
  readonly #fetchResults: FetchResults;
  readonly #folders: TaskFolders;
  readonly #fileParts: FileParts;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #limitGraceMs: number;
  readonly #medianLimits = new MedianLimits();

  /** A task past its time limit has `limitGraceMs` to end. */
  constructor(deps: TaskRunnerDependencies, limitGraceMs: number) {
    this.#slots = deps.slots;
    this.#files = deps.files;
    this.#services = deps.services;
    this.#fetchResults = deps.fetchResults;
    this.#folders = deps.folders;
    this.#fileParts = deps.fileParts;
    this.#log = deps.log;
    this.#now = deps.now;
    this.#limitGraceMs = limitGraceMs;
  }

  run(task: PrefetchedTask, job: JobRecipe, acquired: AcquiredSlot, sink: RunSink): RunHandle {
    const started = this.#now();
    let timedOut = false;
    let timer: NodeJS.Timeout | undefined;
    let median: RunningLimit | undefined;
    let stopped = false;
    let settle: (() => void) | undefined;
    const end = (how: RunEnd): void => {
      clearTimeout(timer);
      median?.end(how.code === 0 && !timedOut ? how.ended - how.started : undefined);
      settle = () => {
        clearTimeout(timer);
        sink.ended(timedOut ? { ...how, timedOut: true } : how);
      };
      if (stopped || timedOut || !wasKilled(how)) settle();
      else timer = setTimeout(settle, KILLED_TOGETHER_MS);
    };
    let run: RunHandle;
    try {
      run = this.#start(
        task,
        job,
        acquired,
        {
          output: (stream, bytes) => sink.output(stream, bytes),
          progress: (value) => sink.progress(value),
          ended: end,
        },
        started,
      );
    } catch (cause) {
      // Bad input in the recipe, or a file that cannot be written: the task has failed, the worker continues.
      setImmediate(() => end({ started, ended: this.#now(), error: asLaboroError(cause).message }));
      return { ...NO_PROCESS, stop: () => {} };
    }
    const { timeLimitMs, timeLimitPercent } = job.limits;
    const stop = (): void => {
      timedOut = true;
      run.stop(this.#limitGraceMs, new LaboroError("LABORO_DEADLINE", "the task is past its time limit"));
    };
    if (timeLimitMs !== undefined) timer = setTimeout(stop, Math.min(timeLimitMs, 2 ** 31 - 1));
    if (timeLimitPercent !== undefined) median = this.#medianLimits.begin(task.job, timeLimitPercent, stop);
    return {
      ...run,
      stop: (graceMs, reason) => {
        stopped = true;
        if (settle === undefined) run.stop(graceMs, reason);
        else settle();
      },
    };
  }

  #start(task: PrefetchedTask, job: JobRecipe, acquired: AcquiredSlot, sink: RunSink, started: number): RunHandle {
    const { recipe } = job;
    if (recipe.kind === "call") return this.#call(recipe, task, job, sink, started);
    if (recipe.files !== undefined) return this.#runWithFiles(task, job, recipe, acquired, sink, started);
    return this.#runProcess(task, job, recipe, acquired, sink);
  }

  /** Gets the task's files, runs it in its own folder, and sends the files that it returns, all in its slot. */
  #runWithFiles(
    task: PrefetchedTask,
    job: JobRecipe,
    recipe: ProcessRecipe,
    acquired: AcquiredSlot,
    sink: RunSink,
    started: number,
  ): RunHandle {
    const { files = {}, ...plain } = recipe;
    const { entry, index } = withEntry(task, recipe);
    const values = { number: taskNumber({ ...job, recipe }, index), entry };
    const stopped = new AbortController();
    const whenStopped = new Promise<never>((_, reject) => {
      stopped.signal.addEventListener("abort", () => reject(badInput("stopped while its files were transferred")));
    });
    whenStopped.catch(() => {});
    let process: RunHandle | undefined;
    const run = async (): Promise<RunEnd> => {
      const making = this.#folders.make(task, files, values, this.#fileParts);
      const folder = await Promise.race([making, whenStopped]).catch((cause: unknown) => {
        void making.then((late) => this.#folders.remove(late)).catch(() => {});
        throw cause;
      });
      try {
        const end = await new Promise<RunEnd>((ended) => {
          process = this.#runProcess(task, job, { ...plain, dir: folder }, acquired, { ...sink, ended });
        });
        process = undefined;
        if (stopped.signal.aborted) return end;
        const result = { values, succeeded: end.code === 0 };
        const way = { parts: this.#fileParts, signal: stopped.signal };
        const sending = this.#folders.returnFiles(task, folder, files, result, way);
        return await Promise.race([sending, whenStopped]).then(
          () => end,
          (cause: unknown) => ({ ...end, error: [end.error, asLaboroError(cause).message].filter(Boolean).join("; ") }),
        );
      } finally {
        this.#folders.remove(folder);
      }
    };
    run().then(
      (end) => sink.ended(end),
      (cause: unknown) => sink.ended({ started, ended: this.#now(), error: asLaboroError(cause).message }),
    );
    return {
      stop: (graceMs, reason) => {
        stopped.abort();
        process?.stop(graceMs, reason);
      },
      pause: () => process?.pause(),
      resume: () => process?.resume(),
    };
  }

  #runProcess(
    task: PrefetchedTask,
    job: JobRecipe,
    recipe: ProcessRecipe,
    acquired: AcquiredSlot,
    sink: RunSink,
  ): RunHandle {
    const shell = this.#slots.slots[acquired.slot];
    if (shell === undefined) throw new Error(`there is no slot ${acquired.slot}`);
    const file = this.#logFile(task, { ...job, recipe });
    const command = shell.run(this.#files.commandOf({ ...job, recipe }, task, acquired), {
      output: (stream, bytes) => {
        file?.write(bytes);
        sink.output(stream, bytes);
      },
      ended: (end) => {
        file?.close();
        sink.ended(end);
      },
    });
    return {
      stop: (graceMs) => (graceMs > 0 ? command.terminate(graceMs) : command.kill()),
      pause: () => command.pause(),
      resume: () => command.resume(),
    };
  }

  #logFile({ job, index }: PrefetchedTask, { recipe, numbers }: JobRecipe): LogFile | undefined {
    if (recipe.kind !== "command" || recipe.log === undefined) return undefined;
    const number = taskNumber({ recipe, numbers }, index);
    const path = recipe.log.replaceAll("{#}", String(number));
    return LogFile.open(path, recipe.dir, (message) => this.#log.warn({ job, task: number }, message));
  }

  /**
   * The return value of a typed handler is the task's value, the answer of any other service its standard output.
   * Incomplete output is a failure, because nobody could use it.
   */
  #call(
    { service, body }: Extract<Recipe, { kind: "call" }>,
    task: PrefetchedTask,
    job: JobRecipe,
    sink: RunSink,
    started: number,
  ): RunHandle {
    const returnsValue = this.#services.returnsValue(service);
    const { outputCap, timeLimitMs } = job.limits;
    const [most, advice] = returnsValue ? [MAX_VALUE, "store it elsewhere"] : [outputCap, "raise its outputCap"];
    const ended = (reply: ServiceReply): void => {
      const times = { started, ended: this.#now() };
      const isTooLarge = reply.error === undefined && reply.body.length > most;
      const { body: answer, error, details } = isTooLarge ? tooLarge(service, reply.body.length, most, advice) : reply;
      if (error === undefined) {
        if (answer.length > 0 && !returnsValue) sink.output("stdout", answer);
        sink.ended({ ...times, code: 0, ...(returnsValue ? { value: answer } : {}) });
        return;
      }
      const text = `${error === "LABORO_SERVICE_FAILED" ? "" : `${error}: `}${Buffer.from(answer).toString()}`;
      const value = returnsValue && details !== undefined ? { value: Buffer.from(JSON.stringify(details)) } : {};
      const retryAfterMs = details?.retryAfterMs;
      sink.ended({ ...times, code: 1, error: text, ...value, ...(retryAfterMs !== undefined && { retryAfterMs }) });
    };
    const info = {
      ...{ job: task.job, index: task.index, number: taskNumber(job, task.index), attempt: task.attempt },
      ...{ key: job.key, after: job.after ?? [] },
      deadline: timeLimitMs === undefined ? undefined : started + timeLimitMs,
    };
    const port: CallPort = {
      progress: (value) => sink.progress(value),
      log: (line) => sink.output("stdout", Buffer.from(line)),
      results: (of, from, limit) => this.#fetchResults(task.job, of, from, limit),
    };
    const call = new ServiceCall(service, info, port, ended);
    // Not at once: the caller does not have the handle yet.
    queueMicrotask(() => this.#services.start(call, service, bodyOf(task, body)));
    return { ...NO_PROCESS, stop: (graceMs, reason) => call.abort(graceMs, reason) };
  }
}

function bodyOf(task: PrefetchedTask, body: Uint8Array | undefined): Uint8Array {
  if (task.entry === undefined) return body ?? new Uint8Array(0);
  return typeof task.entry === "string" ? Buffer.from(task.entry) : task.entry;
}

// Time limits in percent of the median of a job's tasks that have succeeded here. None applies before three have. A
// task's limit is derived from the median when its time is up, not when it started.

interface RunningLimit {
  /** `ms`: how long it took, if it succeeded. */
  end(ms: number | undefined): void;
}

interface JobDurations {
  /** Sorted. */
  readonly durations: number[];
  readonly running: Set<() => void>;
}

const MIN_SUCCEEDED = 3;
const MAX_DURATIONS = 1_001;
/** Jobs without running tasks that are remembered. */
const MAX_JOBS = 100;

class MedianLimits {
  readonly #jobs = new Map<JobId, JobDurations>();

  /** `stop` is called when the time of the task is up. */
  begin(id: JobId, percent: number, stop: () => void): RunningLimit {
    const job = this.#jobs.get(id) ?? { durations: [], running: new Set() };
    this.#jobs.delete(id);
    this.#jobs.set(id, job);
    this.#forgetOld();
    const { durations, running } = job;
    const started = performance.now();
    let timer: NodeJS.Timeout | undefined;
    const check = (): void => {
      clearTimeout(timer);
      const median = durations[durations.length >> 1];
      if (median === undefined || durations.length < MIN_SUCCEEDED) return;
      const left = started + (median * percent) / 100 - performance.now();
      if (left > 0) timer = setTimeout(check, Math.min(Math.ceil(left), MAX_TIMER_MS));
      else stop();
    };
    running.add(check);
    check();
    return {
      end: (ms) => {
        clearTimeout(timer);
        running.delete(check);
        if (ms === undefined) return;
        insert(durations, ms);
        // Tasks that began before there was a median.
        if (durations.length === MIN_SUCCEEDED) for (const other of running) other();
      },
    };
  }

  #forgetOld(): void {
    for (const [id, { running }] of this.#jobs) {
      if (this.#jobs.size <= MAX_JOBS) return;
      if (running.size === 0) this.#jobs.delete(id);
    }
  }
}

/** It would be as large at the next attempt. */
function tooLarge(service: string, bytes: number, most: number, advice: string): ServiceReply {
  const text = `the answer of ${service} has ${bytes} bytes, the job keeps ${most}: ${advice}`;
  const error = "LABORO_BODY_TOO_LARGE";
  const details = { ...describeError(new LaboroError(error, text)), retryAfterMs: "never" as const };
  return { error, body: Buffer.from(text), details };
}

/** The first and the last are removed together, which keeps the median. */
function insert(sorted: number[], ms: number): void {
  const at = sorted.findIndex((other) => other > ms);
  sorted.splice(at < 0 ? sorted.length : at, 0, ms);
  if (sorted.length <= MAX_DURATIONS) return;
  sorted.shift();
  sorted.pop();
}
