/**
 * Reads the result of a laboro task as a runner sends it: the header of the `.res` text, the task's own output, and the line in which the
 * shipped script reports its outcome. Only the output is passed on.
 */
import { MAX_HEADER, readResHeader } from "../res-text.js";
import { reportPrefix } from "./task-script.js";

export interface TaskReport {
  /** As a shell gives it; from the script itself or, where it did not report one, from the runner. */
  readonly exit?: number;
  /** `timeout`, `directory`, `file` or `log`: what became of the task that was not its own doing. */
  readonly reason?: string;
  /** The script came to its end. */
  readonly completed: boolean;
}

/** The line after its mark: `failed 143 timeout`. */
const REPORT = /^(done|failed) (\d{1,3})(?: ([a-z]+))?\n/;
const MAX_REPORT = 64;

export class TaskReportReader {
  readonly #mark: string | undefined;
  readonly #onOutput: (bytes: Buffer) => void;
  #header: "awaited" | "past" = "awaited";
  #waitStatus: number | undefined;
  #report: TaskReport | undefined;
  /** What may be part of something, and must be seen together with what follows. */
  #buffer = Buffer.alloc(0);

  /** Without a mark there is no report line. */
  constructor(mark: string | undefined, onOutput: (bytes: Buffer) => void) {
    this.#mark = mark === undefined ? undefined : reportPrefix(mark);
    this.#onOutput = onOutput;
  }

  push(bytes: Uint8Array): void {
    this.#buffer = Buffer.concat([this.#buffer, bytes]);
    if (this.#header === "awaited" && !this.#passHeader(false)) return;
    this.#passOutput(false);
  }

  end(): TaskReport {
    if (this.#header === "awaited") this.#passHeader(true);
    this.#passOutput(true);
    if (this.#report !== undefined) return this.#report;
    return this.#waitStatus === undefined ? { completed: false } : { exit: this.#waitStatus >> 8, completed: false };
  }

  /** What is no header is output: nothing of it is to be lost. */
  #passHeader(last: boolean): boolean {
    const header = readResHeader(this.#buffer.toString("latin1", 0, MAX_HEADER));
    if (header === undefined && !last && this.#buffer.length < MAX_HEADER) return false;
    this.#header = "past";
    this.#waitStatus = header?.waitStatus;
    this.#buffer = this.#buffer.subarray(header?.length ?? 0);
    return true;
  }

  #passOutput(last: boolean): void {
    const mark = this.#mark;
    if (mark === undefined || this.#report !== undefined) {
      this.#emit(this.#buffer.length);
      return;
    }
    // Where the task has no output, the newline before the mark is its first byte.
    const at = this.#buffer.indexOf(mark, 0, "latin1");
    if (at < 0) {
      this.#emit(Math.max(0, this.#buffer.length - (last ? 0 : mark.length - 1)));
      return;
    }
    this.#emit(at);
    const report = REPORT.exec(this.#buffer.toString("latin1", mark.length, mark.length + MAX_REPORT));
    if (report === null && !last && this.#buffer.length < mark.length + MAX_REPORT) return;
    const [all = "", , exit, reason] = report ?? [];
    if (report !== null) {
      this.#report = { exit: Number(exit), ...(reason === undefined ? {} : { reason }), completed: true };
      this.#buffer = this.#buffer.subarray(mark.length + all.length);
    }
    // Bytes after it, of a process in the background, are output too.
    this.#emit(this.#buffer.length);
  }

  #emit(bytes: number): void {
    if (bytes === 0) return;
    this.#onOutput(this.#buffer.subarray(0, bytes));
    this.#buffer = this.#buffer.subarray(bytes);
  }
}
