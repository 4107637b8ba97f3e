/** Runs one task of any recipe and reports its outcome. */

import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { Outcome, OutputStream } from "../model/outcome.js";
import { taskNumber } from "../model/task-numbers.js";
import type { JobRecipe } from "../protocols/laboro/messages.js";
import type { AcquiredSlot } from "./capacity.js";
import type { JobFiles } from "./job-files.js";
import { LogFile } from "./log-file.js";
import type { Slots } from "./processes/index.js";
import { ServiceCall, type ServiceReply, type Services } from "./services.js";
import type { PrefetchedTask } from "./task-tracker.js";

/** The outcome without the length of the output, which the receiver of the output knows. */
export type RunEnd = Omit<Outcome, "outputBytes">;

export interface RunSink {
  output(stream: OutputStream, bytes: Uint8Array): void;
  ended(end: RunEnd): void;
}

export interface RunHandle {
  /** SIGTERM, and SIGKILL after the grace: `ended` follows when it is gone. A handler is aborted; `ended` follows after the grace at the latest. */
  stop(graceMs: number): void;
  /** Stops reading the task's output, so that it blocks when its pipes are full. */
  pause(): void;
  resume(): void;
}

const NO_PROCESS = { pause: () => {}, resume: () => {} };

export interface TaskRunnerDependencies {
  readonly slots: Slots;
  readonly files: JobFiles;
  readonly services: Services;
  readonly log: Log;
  readonly now: () => number;
}

export class TaskRunner {
  readonly #slots: Slots;
  readonly #files: JobFiles;
  readonly #services: Services;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #limitGraceMs: number;

  /** A task past its time limit has `limitGraceMs` to end. */
  constructor(deps: TaskRunnerDependencies, limitGraceMs: number) {
    this.#slots = deps.slots;
    this.#files = deps.files;
    this.#services = deps.services;
    this.#log = deps.log;
    this.#now = deps.now;
    this.#limitGraceMs = limitGraceMs;
  }

  run(task: PrefetchedTask, job: JobRecipe, acquired: AcquiredSlot, sink: RunSink): RunHandle {
    const started = this.#now();
    let timedOut = false;
    let timer: NodeJS.Timeout | undefined;
    const end = (how: RunEnd): void => {
      clearTimeout(timer);
      sink.ended(timedOut ? { ...how, timedOut: true } : how);
    };
    let run: RunHandle;
    try {
      run = this.#start(
        task,
        job,
        acquired,
        { output: (stream, bytes) => sink.output(stream, bytes), ended: end },
        started,
      );
    } catch (cause) {
      // Bad input in the recipe, a file that cannot be written: the task has failed, the worker goes on.
      setImmediate(() => end({ started, ended: this.#now(), error: asLaboroError(cause).message }));
      return { ...NO_PROCESS, stop: () => {} };
    }
    const { timeLimitMs } = job.limits;
    if (timeLimitMs !== undefined) {
      timer = setTimeout(
        () => {
          timedOut = true;
          run.stop(this.#limitGraceMs);
        },
        Math.min(timeLimitMs, 2 ** 31 - 1),
      );
    }
    return run;
  }

  #start(task: PrefetchedTask, job: JobRecipe, acquired: AcquiredSlot, sink: RunSink, started: number): RunHandle {
    const { recipe } = job;
    if (recipe.kind === "call")
      return this.#call(recipe.service, bodyOf(task, recipe.body), job.limits.outputCap, sink, started);
    const shell = this.#slots.slots[acquired.slot];
    if (shell === undefined) throw new Error(`there is no slot ${acquired.slot}`);
    const file = this.#logFile(task, job);
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

  /** The answer of the service is the task's standard output. One that the job does not keep whole is a failure: no one could use it. */
  #call(service: string, body: Uint8Array, cap: number, sink: RunSink, started: number): RunHandle {
    const ended = ({ body: answer, error }: ServiceReply): void => {
      const times = { started, ended: this.#now() };
      if (error === undefined && answer.length <= cap) {
        if (answer.length > 0) sink.output("stdout", answer);
        sink.ended({ ...times, code: 0 });
        return;
      }
      const text =
        error === undefined
          ? `LABORO_BODY_TOO_LARGE: the answer of ${service} has ${answer.length} bytes, the job keeps ${cap}: raise its outputCap`
          : `${error === "LABORO_SERVICE_FAILED" ? "" : `${error}: `}${Buffer.from(answer).toString()}`;
      sink.ended({ ...times, code: 1, error: text });
    };
    // Not at once: the caller does not have the handle yet.
    const call = new ServiceCall(service, (reply) => queueMicrotask(() => ended(reply)));
    this.#services.start(call, service, body);
    return { ...NO_PROCESS, stop: (graceMs) => call.abort(graceMs) };
  }
}

function bodyOf(task: PrefetchedTask, body: Uint8Array | undefined): Uint8Array {
  if (task.entry === undefined) return body ?? new Uint8Array(0);
  return typeof task.entry === "string" ? Buffer.from(task.entry) : task.entry;
}
