/**
 * What a runner sends of a task of laboro, taken apart as it comes: the header of the `.res` text, the task's own output, and the line
 * in which the shipped script says how it went. Only the output is passed on.
 */
import { LONGEST_HEADER, readHeader } from "../res-text.js";
import { reportMark } from "./task-script.js";

export interface TaskReport {
  /** As a shell gives it; from the script itself or, where that never came to say it, from the runner. */
  readonly exit?: number;
  /** `timeout`, `directory`, `file` or `log`: what became of the task that was not its own doing. */
  readonly word?: string;
  /** The script came to its end. */
  readonly ended: boolean;
}

/** The line after its mark: `failed 143 timeout`. */
const REPORT = /^(done|failed) (\d{1,3})(?: ([a-z]+))?\n/;
const LONGEST_REPORT = 64;

export class TaskReportReader {
  readonly #mark: string | undefined;
  readonly #pass: (bytes: Buffer) => void;
  #header: "awaited" | "past" = "awaited";
  #waitStatus: number | undefined;
  #report: TaskReport | undefined;
  /** What may be part of something, and must be seen together with what follows. */
  #held = Buffer.alloc(0);

  /** Without a mark there is no last line to look for. */
  constructor(mark: string | undefined, pass: (bytes: Buffer) => void) {
    this.#mark = mark === undefined ? undefined : reportMark(mark);
    this.#pass = pass;
  }

  push(bytes: Uint8Array): void {
    this.#held = Buffer.concat([this.#held, bytes]);
    if (this.#header === "awaited" && !this.#passHeader(false)) return;
    this.#passOutput(false);
  }

  end(): TaskReport {
    if (this.#header === "awaited") this.#passHeader(true);
    this.#passOutput(true);
    if (this.#report !== undefined) return this.#report;
    return this.#waitStatus === undefined ? { ended: false } : { exit: this.#waitStatus >> 8, ended: false };
  }

  /** What is no header is output: nothing of it is to be lost. */
  #passHeader(last: boolean): boolean {
    const header = readHeader(this.#held.toString("latin1", 0, LONGEST_HEADER));
    if (header === undefined && !last && this.#held.length < LONGEST_HEADER) return false;
    this.#header = "past";
    this.#waitStatus = header?.waitStatus;
    this.#held = this.#held.subarray(header?.length ?? 0);
    return true;
  }

  #passOutput(last: boolean): void {
    const mark = this.#mark;
    if (mark === undefined || this.#report !== undefined) {
      this.#give(this.#held.length);
      return;
    }
    // Where the task has said nothing, the newline before the mark is the first byte of its output.
    const at = this.#held.indexOf(mark, 0, "latin1");
    if (at < 0) {
      this.#give(Math.max(0, this.#held.length - (last ? 0 : mark.length - 1)));
      return;
    }
    this.#give(at);
    const report = REPORT.exec(this.#held.toString("latin1", mark.length, mark.length + LONGEST_REPORT));
    if (report === null && !last && this.#held.length < mark.length + LONGEST_REPORT) return;
    const [all = "", , exit, word] = report ?? [];
    if (report !== null) {
      this.#report = { exit: Number(exit), ...(word === undefined ? {} : { word }), ended: true };
      this.#held = this.#held.subarray(mark.length + all.length);
    }
    // What something left in the background has said after it is output too.
    this.#give(this.#held.length);
  }

  #give(bytes: number): void {
    if (bytes === 0) return;
    this.#pass(this.#held.subarray(0, bytes));
    this.#held = this.#held.subarray(bytes);
  }
}
