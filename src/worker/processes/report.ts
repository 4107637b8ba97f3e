/**
 * Reads the reports of a slot's shell about its task. Marked lines end with `\n` and carry one letter and a number:
 *
 *     MARK D1     the directory could not be entered, says the subshell; d1 says the shell itself
 *     MARK X127   the command could not be started, with the shell's code for why
 *     MARK E0     the task is over, with the shell's status; ends the report
 *
 * Text between them is the shell's own message ("Killed"), printed when a signal ended the task: it distinguishes status 137 by
 * signal from exit 137. No shell prints it for SIGINT and SIGPIPE, so these count as exit 130 and 141.
 */

import { constants } from "node:os";

export interface TaskReport {
  /** The exit code; with `failed` the shell's code for why. Absent with `signal`. */
  readonly code?: number;
  readonly signal?: string;
  readonly failed?: "directory" | "start";
}

const MAX_KEPT = 65_536;

export class ReportReader {
  private readonly line: RegExp;
  private text = "";
  private sawMessage = false;
  private failure: Pick<TaskReport, "failed" | "code"> | undefined;
  /** Bytes that the shell itself has written to the pipe, not one of its subshells. */
  ownBytes = 0;

  constructor(mark: string) {
    this.line = new RegExp(`${mark} ([DdXE])([0-9]+)\\n`);
  }

  /** Takes a piece of the pipe; returns the report when the piece completes it. */
  push(bytes: Buffer): TaskReport | undefined {
    this.text += bytes.toString("latin1");
    this.ownBytes += bytes.length;
    for (;;) {
      const match = this.line.exec(this.text);
      if (match === null) break;
      if (match.index > 0) this.sawMessage = true;
      this.text = this.text.slice(match.index + match[0].length);
      if (match[1] === "E") return this.finish(Number(match[2]));
      if (match[1] !== "d") this.ownBytes -= match[0].length;
      this.failure ??= { failed: match[1] === "X" ? "start" : "directory", code: Number(match[2]) };
    }
    // A shell may quote the whole command in its message; only a tail can hold the beginning of a mark.
    if (this.text.length > MAX_KEPT) {
      this.sawMessage = true;
      this.text = this.text.slice(-256);
    }
    return undefined;
  }

  private finish(status: number): TaskReport {
    const { sawMessage, failure } = this;
    this.sawMessage = false;
    this.failure = undefined;
    if (status > 128 && sawMessage) return { signal: signalName(status - 128) };
    return failure ?? { code: status };
  }
}

export function signalName(number: number): string {
  for (const [name, value] of Object.entries(constants.signals)) {
    if (value === number) return name;
  }
  return `SIG${number}`;
}
