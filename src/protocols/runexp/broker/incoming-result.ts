/**
 * One result that is being received: an experiment's goes to its file as it is; of a task's result only the task's own output goes to the
 * store. The socket is paused while too many bytes are not on disk. A result that is too large is received and not kept: its task has
 * failed, and its runner goes on.
 */
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import type { Done } from "../../../dispatch/index.js";
import type { WorkerId } from "../../../model/ids.js";
import type { Status } from "../messages.js";
import type { SentTask } from "./experiments.js";
import type { ResFile } from "./result-file.js";
import { type TaskReport, TaskReportReader } from "./task-report.js";

/** Bytes that may be received and not on disk. */
const MAX_UNWRITTEN_BYTES = 1024 * 1024;

export class IncomingResult {
  readonly task: SentTask;
  readonly status: Status;
  /** Who has the claim; the result may come by another connection of its host. */
  readonly worker: WorkerId;
  readonly #core: Core;
  readonly #setFlowing: (flowing: boolean) => void;
  readonly #file: ResFile | undefined;
  readonly #reader: TaskReportReader | undefined;
  /** Why it is not kept. */
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

  /** Throws where its file cannot be written. */
  push(bytes: Buffer): void {
    if (this.#refusal !== undefined) return;
    if (this.#reader === undefined) this.#file?.write(bytes);
    else this.#reader.push(bytes);
  }

  /**
   * All of it is here; true where it is the task's result, false where the task has become another worker's. `onDurable` is called when it
   * is on disk: an experiment's file shows a later start that it is done, so the broker's own record of it is not waited for. `settle`
   * reports the result to dispatch, and resolves when that is recorded. Rejects where the file could not be written.
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
    // Before RICEVIS: otherwise a process killed in between would lose an acknowledged result.
    this.#file?.publish();
    const recorded = settle({ job, index, attempt, started, ended: now(), outputBytes: this.#stored, ...outcome });
    // Beside the broker's own commit: a record without its file is an experiment that the next start runs again.
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

/** The runner has decided it by the RES: line; the exit status does not matter. */
function experimentOutcome(status: Status): OutcomeFields {
  if (status === "success") return { code: 0 };
  return { code: 1, error: "the experiment has not said that it succeeded (RES:)" };
}

const REASON_TEXTS: Readonly<Record<string, string>> = {
  directory: "its directory cannot be entered at the runner",
  file: "the runner's machine could not write a file of the task",
  log: "its log file cannot be opened at the runner",
};

function taskOutcome(report: TaskReport, status: Status, { mark }: SentTask): OutcomeFields {
  // A script for MATLAB has only its RES: line.
  if (mark === undefined) return experimentOutcome(status);
  const { exit, reason, completed } = report;
  if (reason === "timeout") return exit === undefined ? { timedOut: true } : { timedOut: true, code: exit };
  if (reason !== undefined) return { error: REASON_TEXTS[reason] ?? reason };
  if (exit === undefined) return { error: "the runner's answer does not say how the task ended" };
  if (completed) return { code: exit };
  return { code: exit === 0 ? 1 : exit, error: "the script was ended before it could say how the task went" };
}
