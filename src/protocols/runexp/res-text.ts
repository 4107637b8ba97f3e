/**
 * The text of a `.res` file: the runner's header before the output of the job, and the rule by which that output is a success.
 */
import type { Status } from "./messages.js";

export interface RunSummary {
  readonly name: string;
  readonly host: string;
  /** As it was started: `bash '/tmp/…/runexp_x.sh'`. */
  readonly command: string;
  readonly started: string;
  readonly ended: string;
  /** As wait(2) gives it: 768 for an exit with 3. */
  readonly waitStatus: number;
  readonly status: Status;
}

/** All of the text but the job's output, which follows it. One character a byte. */
export function writeResHeader({ name, host, command, started, ended, waitStatus, status }: RunSummary): string {
  return [
    `runexp summary: ${status}`,
    "",
    `${started} -- [${host}] Running ${name}`,
    `> ${command}`,
    `${ended} -- Finished running`,
    `Program exited with status ${waitStatus}`,
    OUTPUT_FOLLOWS,
    "",
    "",
  ].join("\n");
}

const OUTPUT_FOLLOWS = "Program output follows";
/** A header is shorter than this: a few dates, a name and the path of a script. */
export const MAX_HEADER = 16_384;

export interface ResHeader {
  /** Where the output begins. */
  readonly length: number;
  readonly waitStatus: number;
}

/**
 * The header that this text, with one character a byte, begins with; undefined where there is none, or not all of it yet. An empty line
 * follows the command of a `.m` job.
 */
export function readResHeader(text: string): ResHeader | undefined {
  const found =
    /^runexp summary: (?:success|failure)\n\n[^\n]* -- \[[^\n]*\] Running [^\n]*\n> [^\n]*\n\n?[^\n]* -- Finished running\nProgram exited with status (-?\d+)\nProgram output follows\n\n/.exec(
      text,
    );
  return found === null ? undefined : { length: found[0].length, waitStatus: Number(found[1]) };
}

/** The status in the first line of a `.res` file, where a runner has written it. */
export function summaryOf(firstLine: string): Status | undefined {
  const [, status] = /^runexp summary: (success|failure)/.exec(firstLine) ?? [];
  return status === "success" || status === "failure" ? status : undefined;
}

/** A line longer than this is judged in parts. */
const MAX_LINE = 65_536;
/** Kept of a part, so that a tag is not cut in two. */
const OVERLAP = 256;

/**
 * The last line of the output with `RES:` in it decides: it is a success unless it says `RES: failed`. No such line is a failure; the
 * exit status does not matter. Takes the output as it comes.
 */
export class ResStatusReader {
  #line = "";
  #tagged = false;
  #failed = false;
  #status: Status = "failure";

  push(bytes: Uint8Array): void {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
    const lines = text.split("\n");
    lines.forEach((part, at) => {
      if (at > 0) this.#endLine();
      this.#line += part;
      if (this.#line.length > MAX_LINE) this.#scanPart();
    });
  }

  get status(): Status {
    this.#scanLine();
    return this.#tagged ? (this.#failed ? "failure" : "success") : this.#status;
  }

  #endLine(): void {
    this.#scanLine();
    if (this.#tagged) this.#status = this.#failed ? "failure" : "success";
    this.#line = "";
    this.#tagged = false;
    this.#failed = false;
  }

  #scanLine(): void {
    if (!this.#line.includes("RES:")) return;
    this.#tagged = true;
    if (/RES:\s*failed/i.test(this.#line)) this.#failed = true;
  }

  #scanPart(): void {
    this.#scanLine();
    this.#line = this.#line.slice(-OVERLAP);
  }
}

/** By the same rule, for a whole output. */
export function resStatusOf(output: Uint8Array): Status {
  const reader = new ResStatusReader();
  reader.push(output);
  return reader.status;
}

/** What wait(2) would say of a command that a shell has run, where a signal is an exit with 128 more than its number. */
export const toWaitStatus = (exit: number): number => exit * 256;
