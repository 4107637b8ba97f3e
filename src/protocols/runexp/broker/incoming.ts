/**
 * One result on its way in: an experiment's goes to its file, all of it as it is; of a task's only what the task itself has said goes to the
 * store, as it comes. The sender is told to wait while too much is on its way to the disk.
 */
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import type { Done } from "../../../dispatch/index.js";
import { claimOf } from "../../../dispatch/state.js";
import type { WorkerId } from "../../../model/ids.js";
import type { Status } from "../messages.js";
import type { ResultFile, SentTask } from "./experiments.js";
import { type TaskReport, TaskReportReader } from "./task-report.js";

/** Bytes that may be on their way to the disk. */
const WINDOW = 1024 * 1024;

export interface IncomingPorts {
  /** `flowing` is false while too much is on its way. */
  flow(flowing: boolean): void;
}

export class Incoming {
  readonly task: SentTask;
  readonly status: Status;
  /** Who has the claim; the result may come by another connection of its host. */
  readonly worker: WorkerId;
  readonly #core: Core;
  readonly #ports: IncomingPorts;
  readonly #file: ResultFile | undefined;
  readonly #reader: TaskReportReader | undefined;
  #stored = 0;
  #underWay = 0;

  constructor(
    core: Core,
    worker: WorkerId,
    task: SentTask,
    status: Status,
    file: ResultFile | undefined,
    ports: IncomingPorts,
  ) {
    this.#core = core;
    this.worker = worker;
    this.task = task;
    this.status = status;
    this.#file = file;
    this.#ports = ports;
    this.#reader = task.experiment ? undefined : new TaskReportReader(task.mark, (bytes) => this.#store(bytes));
  }

  /** Throws where its file cannot be written. */
  push(bytes: Buffer): void {
    if (this.#reader === undefined) this.#file?.write(bytes);
    else this.#reader.push(bytes);
  }

  /**
   * All of it is here; true where it is the task's result, false where the task has become another's. `kept` is called when it is on disk
   * and there: an experiment's file is what tells a later start that it is done, so the broker's own record of it is not waited for. `settle` tells
   * dispatch, and resolves when that is recorded. Rejects where the file could not be written.
   */
  async record(settle: (done: Done) => Promise<void>, kept: () => void): Promise<boolean> {
    const how = this.#how();
    await this.#file?.sync();
    const { job, index, attempt, started } = this.task;
    const holder = this.#core.state.workers.get(this.worker);
    const counts = holder !== undefined && claimOf(holder, job, index)?.attempt === attempt;
    if (!counts) {
      this.abandon();
      kept();
      return false;
    }
    // Not after it: what a runner was told of would be lost with a process that is killed in between.
    this.#file?.publish();
    if (this.#file !== undefined) kept();
    const recorded = settle({ job, index, attempt, started, ended: now(), outputEnd: this.#stored, ...how });
    if (this.#file !== undefined) return true;
    await recorded;
    kept();
    return true;
  }

  #how(): How {
    if (this.#reader === undefined) return experimentOutcome(this.status);
    return taskOutcome(this.#reader.end(), this.status, this.task);
  }

  abandon(): void {
    this.#file?.abandon();
  }

  #store(bytes: Buffer): void {
    const { job, index, attempt } = this.task;
    const offset = this.#stored;
    this.#stored += bytes.length;
    this.#begin(bytes.length);
    const chunk = { job, index, attempt, stream: "stdout" as const, offset, bytes };
    const taken = this.#core.workerOutput(this.worker, chunk, () => this.#ended(bytes.length));
    // The task is no longer this worker's; its end will be thrown away too.
    if (!taken) this.#ended(bytes.length);
  }

  #begin(bytes: number): void {
    this.#underWay += bytes;
    if (this.#underWay > WINDOW) this.#ports.flow(false);
  }

  #ended(bytes: number): void {
    const before = this.#underWay;
    this.#underWay -= bytes;
    if (before > WINDOW / 2 && this.#underWay <= WINDOW / 2) this.#ports.flow(true);
  }
}

type How = Pick<Done, "code" | "error" | "timedOut">;

/** The runner has judged it by what it said; its exit status does not matter. */
function experimentOutcome(status: Status): How {
  if (status === "success") return { code: 0 };
  return { code: 1, error: "the experiment has not said that it succeeded (RES:)" };
}

const WORDS: Readonly<Record<string, string>> = {
  directory: "its directory cannot be entered at the runner",
  file: "the runner's machine could not write a file of the task",
  log: "its log file cannot be opened at the runner",
};

function taskOutcome(report: TaskReport, status: Status, { mark }: SentTask): How {
  // A script for MATLAB has only its RES: line.
  if (mark === undefined) return experimentOutcome(status);
  const { exit, word, ended } = report;
  if (word === "timeout") return exit === undefined ? { timedOut: true } : { timedOut: true, code: exit };
  if (word !== undefined) return { error: WORDS[word] ?? word };
  if (exit === undefined) return { error: "the runner's answer does not say how the task ended" };
  if (ended) return { code: exit };
  return { code: exit === 0 ? 1 : exit, error: "the script was ended before it could say how the task went" };
}
