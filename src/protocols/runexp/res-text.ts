/** The text of a `.res` file: the header, its dates, and the rule by which the output is a success. */
import { execFileSync } from "node:child_process";
import type { Status } from "./messages.js";

interface RunSummary {
  readonly name: string;
  readonly host: string;
  /** As it was started: `bash '/tmp/…/runexp_x.sh'`. */
  readonly command: string;
  readonly started: string;
  readonly ended: string;
  /** As wait(2) returns it: 768 for an exit with 3. */
  readonly waitStatus: number;
  readonly status: Status;
}

/** The text before the job's output. One character a byte. */
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
/** Bytes of a header at most. */
export const MAX_HEADER = 16_384;

interface ResHeader {
  /** Where the output begins. */
  readonly length: number;
  readonly waitStatus: number;
}

/** The header of a text with one character per byte, if complete. A `.m` job has an empty line after the command. */
export function readResHeader(text: string): ResHeader | undefined {
  const found =
    /^runexp summary: (?:success|failure)\n\n[^\n]* -- \[[^\n]*\] Running [^\n]*\n> [^\n]*\n\n?[^\n]* -- Finished running\nProgram exited with status (-?\d+)\nProgram output follows\n\n/.exec(
      text,
    );
  return found === null ? undefined : { length: found[0].length, waitStatus: Number(found[1]) };
}

/** The status in the first line of a `.res` file, if a runner wrote it. */
export function summaryOf(firstLine: string): Status | undefined {
  const [, status] = /^runexp summary: (success|failure)/.exec(firstLine) ?? [];
  return status === "success" || status === "failure" ? status : undefined;
}

/** A longer line is scanned in parts… */
const MAX_LINE = 65_536;
/** …which overlap, so that no tag is split. */
const OVERLAP = 256;

/** The last line with `RES:` decides: success, unless it says failed; failure without one. Exit codes are ignored. */
export class ResStatusReader {
  #line = "";
  #tagged = false;
  #failed = false;
  #status: Status = "failure";

  push(bytes: Uint8Array): void {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
    text.split("\n").forEach((part, at) => {
      if (at > 0) this.#endLine();
      this.#line += part;
      if (this.#line.length <= MAX_LINE) return;
      this.#scanLine();
      this.#line = this.#line.slice(-OVERLAP);
    });
  }

  get status(): Status {
    this.#scanLine();
    if (this.#tagged) return this.#failed ? "failure" : "success";
    return this.#status;
  }

  #endLine(): void {
    this.#status = this.status;
    this.#line = "";
    this.#tagged = false;
    this.#failed = false;
  }

  #scanLine(): void {
    if (!this.#line.includes("RES:")) return;
    this.#tagged = true;
    if (/RES:\s*failed/i.test(this.#line)) this.#failed = true;
  }
}

/** Of a whole output. */
export function resStatusOf(output: Uint8Array): Status {
  const reader = new ResStatusReader();
  reader.push(output);
  return reader.status;
}

/** The status as wait(2) returns it. `exit` is as a shell reports it: 128 and the number for a signal. */
export const toWaitStatus = (exit: number): number => exit * 256;

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** By offset. Only date(1) knows the name of a time zone. */
const zones = new Map<number, string>();

const twoDigits = (number: number): string => String(number).padStart(2, "0");

const clock = (at: Date): string =>
  `${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}:${twoDigits(at.getSeconds())}`;

/** As date(1) writes it in the C locale: `Sun Nov 15 19:30:13 UTC 2026`. */
export function longDate(ms: number): string {
  const at = new Date(ms);
  const day = String(at.getDate()).padStart(2, " ");
  return `${DAYS[at.getDay()]} ${MONTHS[at.getMonth()]} ${day} ${clock(at)} ${zoneOf(at)} ${at.getFullYear()}`;
}

/** `Nov 15 19:30:13`, as the original programs begin their lines. */
export function shortDate(ms: number): string {
  const at = new Date(ms);
  return `${MONTHS[at.getMonth()]} ${twoDigits(at.getDate())} ${clock(at)}`;
}

function zoneOf(at: Date): string {
  const offset = at.getTimezoneOffset();
  const zone = zones.get(offset) ?? zoneFromDateCommand(at);
  zones.set(offset, zone);
  return zone;
}

function zoneFromDateCommand(at: Date): string {
  if (at.getTimezoneOffset() === 0 && (process.env.TZ ?? "UTC") === "UTC") return "UTC";
  try {
    return execFileSync("date", ["-d", `@${Math.floor(at.getTime() / 1000)}`, "+%Z"], { encoding: "latin1" }).trim();
  } catch {
    // Not GNU's date(1).
    return "UTC";
  }
}
