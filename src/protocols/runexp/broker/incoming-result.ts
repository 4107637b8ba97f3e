/**
 * A result that is being received. The result of an experiment is written to its file unchanged. Of other tasks only
 * the output is stored. The socket is paused while too many bytes are not on disk. A result that is too large is
 * received and dropped, and its task fails.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { now } from "../../../base/clock.js";
import { errnoOf } from "../../../base/errors.js";
import { writeFailure, writeFully } from "../../../base/files/durable.js";
import type { Core } from "../../../broker/core.js";
import type { Done } from "../../../dispatch/index.js";
import type { WorkerId } from "../../../model/ids.js";
import { bytesOf, displayName, type Status } from "../messages.js";
import type { SentTask } from "./runner-tasks.js";
import { type TaskReport, TaskReportReader } from "./task-script.js";

/** Bytes that are received and not on disk. */
const MAX_UNWRITTEN_BYTES = 1024 * 1024;

export class IncomingResult {
  readonly task: SentTask;
  readonly status: Status;
  /** The worker that holds the claim. The result may arrive over another connection of its host. */
  readonly worker: WorkerId;
  readonly #core: Core;
  readonly #setFlowing: (flowing: boolean) => void;
  readonly #file: ResFile | undefined;
  readonly #reader: TaskReportReader | undefined;
  /** Why it is not stored. */
  readonly #refusal: string | undefined;
  #stored = 0;
  #unwrittenBytes = 0;

  /** `setFlowing` is called with false while too many bytes are not on disk. */
  constructor(
    core: Core,
    worker: WorkerId,
    task: SentTask,
    status: Status,
    file: ResFile | undefined,
    refusal: string | undefined,
    setFlowing: (flowing: boolean) => void,
  ) {
    this.#core = core;
    this.worker = worker;
    this.task = task;
    this.status = refusal === undefined ? status : "failure";
    this.#refusal = refusal;
    this.#file = file;
    this.#setFlowing = setFlowing;
    this.#reader = task.experiment ? undefined : new TaskReportReader(task.mark, (bytes) => this.#store(bytes));
  }

  /** Throws if its file cannot be written. */
  push(bytes: Buffer): void {
    if (this.#refusal !== undefined) return;
    if (this.#reader === undefined) this.#file?.write(bytes);
    else this.#reader.push(bytes);
  }

  /**
   * The result is complete. `settle` reports it to dispatch and resolves when that is stored. `onDurable` is called
   * when the result is on disk: for an experiment that is its file, from which a later start sees that it is done.
   * Resolves with false if the task has another worker by now. Rejects if the file cannot be written.
   */
  async record(settle: (done: Done) => Promise<void>, onDurable: () => void): Promise<boolean> {
    const outcome = this.#outcome();
    if (this.#refusal !== undefined) this.#file?.write(Buffer.from(`runexp summary: failure\n\n${this.#refusal}\n`));
    await this.#file?.sync();
    const { job, index, attempt, started } = this.task;
    const counts = this.#core.claimOf(this.worker, job, index)?.attempt === attempt;
    if (!counts) {
      this.abandon();
      onDurable();
      return false;
    }
    // Before RICEVIS, so that a killed process loses no acknowledged result.
    this.#file?.publish();
    const recorded = settle({ job, index, attempt, started, ended: now(), outputBytes: this.#stored, ...outcome });
    // In parallel to the broker's commit. If only the commit survives a crash, the next start runs the experiment
    // again.
    await (this.#file === undefined ? recorded : this.#file.syncName());
    onDurable();
    return true;
  }

  #outcome(): OutcomeFields {
    if (this.#refusal !== undefined) return { error: this.#refusal };
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
    this.#unwrittenBytes += bytes.length;
    if (this.#unwrittenBytes > MAX_UNWRITTEN_BYTES) this.#setFlowing(false);
    const chunk = { job, index, attempt, stream: "stdout" as const, offset, bytes };
    this.#core.workerOutput(this.worker, [chunk], () => this.#bytesWritten(bytes.length));
  }

  #bytesWritten(bytes: number): void {
    const before = this.#unwrittenBytes;
    this.#unwrittenBytes -= bytes;
    if (before > MAX_UNWRITTEN_BYTES / 2 && this.#unwrittenBytes <= MAX_UNWRITTEN_BYTES / 2) this.#setFlowing(true);
  }
}

type OutcomeFields = Pick<Done, "code" | "error" | "timedOut">;

/** The runner decides by the RES: line; the exit status does not matter. */
function experimentOutcome(status: Status): OutcomeFields {
  if (status === "success") return { code: 0 };
  return { code: 1, error: "the last RES: line of its output is missing or says failed" };
}

const REASON_TEXTS: Readonly<Record<string, string>> = {
  directory: "the runner cannot enter the directory of the task",
  file: "the runner cannot write a file of the task",
  log: "the runner cannot open the log file of the task",
};

function taskOutcome(report: TaskReport, status: Status, { mark }: SentTask): OutcomeFields {
  // A script for MATLAB has only its RES: line.
  if (mark === undefined) return experimentOutcome(status);
  const { exit, reason, completed } = report;
  if (reason === "timeout") return exit === undefined ? { timedOut: true } : { timedOut: true, code: exit };
  if (reason !== undefined) return { error: REASON_TEXTS[reason] ?? reason };
  if (exit === undefined) return { error: "the runner's result does not say how the task ended" };
  if (completed) return { code: exit };
  return { code: exit === 0 ? 1 : exit, error: "the script was killed before it reported how the task ended" };
}

export interface ResFileOptions {
  /** The folder of results. A path of bytes. */
  readonly outputs: string;
  /** Where results are written before they get their names, on the same filesystem. A path of bytes. */
  readonly drafts: string;
}

/** A `.res` file that is being written. It appears complete and durable, or not at all. Methods throw if they fail. */
export class ResFile {
  static #count = 0;
  readonly #outputs: string;
  readonly #path: string;
  readonly #draft: string;
  #fd: number | undefined;
  #written = 0;
  #newFolder = false;

  constructor(name: string, { outputs, drafts }: ResFileOptions) {
    this.#outputs = outputs;
    this.#path = `${outputs}/${name}.res`;
    this.#draft = `${drafts}/${process.pid}-${++ResFile.#count}.res`;
  }

  write(bytes: Uint8Array): void {
    try {
      this.#fd ??= fs.openSync(bytesOf(this.#draft), "w", 0o666);
      writeFully(this.#fd, bytes, this.#written);
      this.#written += bytes.length;
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** Resolves when all of it is on disk, without its name yet. */
  async sync(): Promise<void> {
    this.write(Buffer.alloc(0));
    try {
      if (this.#fd !== undefined) await promisify(fs.fsync)(this.#fd);
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** Gives it its name. */
  publish(): void {
    this.#close();
    const [from, to] = [bytesOf(this.#draft), bytesOf(this.#path)];
    try {
      try {
        fs.renameSync(from, to);
      } catch (cause) {
        if (errnoOf(cause) !== "ENOENT") throw cause;
        fs.mkdirSync(bytesOf(dirname(this.#path)), { recursive: true });
        this.#newFolder = true;
        fs.renameSync(from, to);
      }
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** Resolves when its name is on disk, with those of new folders. */
  async syncName(): Promise<void> {
    const top = this.#newFolder ? this.#outputs : dirname(this.#path);
    try {
      for (let folder = dirname(this.#path); folder.length >= top.length; folder = dirname(folder)) {
        const directory = await fs.promises.open(bytesOf(folder), "r");
        await directory.sync().finally(() => directory.close());
        if (folder === dirname(folder)) return;
      }
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  abandon(): void {
    this.#close();
    fs.rmSync(bytesOf(this.#draft), { force: true });
  }

  #close(): void {
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    this.#fd = undefined;
  }

  #failure(cause: unknown): Error {
    return writeFailure(cause, `cannot write ${displayName(this.#path)}`);
  }
}
