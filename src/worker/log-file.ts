/** The file at the worker that gets a task's output too, where its recipe names one. It is always a new one. */
import { closeSync, openSync } from "node:fs";
import { errnoOf, LaboroError } from "../base/errors.js";
import { writeFully } from "../base/files/durable.js";
import type { Bytes } from "../model/recipe.js";

/** The highest number that is tried. */
const MAX_EARLIER = 10_000;

export class LogFile {
  readonly #onFailure: (message: string) => void;
  #fd: number | undefined;
  #length = 0;

  private constructor(fd: number, onFailure: (message: string) => void) {
    this.#fd = fd;
    this.#onFailure = onFailure;
  }

  /**
   * `job_3.log`, or `job_3-1.log` if that exists already, and so on. A relative path begins at the task's directory. Throws
   * LABORO_BAD_INPUT if the file cannot be created: a task whose log would be lost is not run. `onFailure` is called if a later
   * write fails.
   */
  static open(path: Bytes, dir: Bytes | undefined, onFailure: (message: string) => void): LogFile {
    const whole = within(dir, latin(path));
    for (let earlier = 0; earlier <= MAX_EARLIER; earlier++) {
      const name = Buffer.from(earlier === 0 ? whole : numbered(whole, earlier), "latin1");
      try {
        return new LogFile(openSync(name, "wx", 0o666), onFailure);
      } catch (cause) {
        if (errnoOf(cause) !== "EEXIST") throw cannotOpen(name, why(cause), cause);
      }
    }
    throw cannotOpen(Buffer.from(whole, "latin1"), `it is there, and so are ${MAX_EARLIER} others of its name`);
  }

  /** After a failure nothing more is written: the task goes on, and its output is at the broker all the same. */
  write(bytes: Uint8Array): void {
    if (this.#fd === undefined) return;
    try {
      writeFully(this.#fd, bytes, this.#length);
      this.#length += bytes.length;
    } catch (cause) {
      this.close();
      this.#onFailure(`its log file is not complete: ${why(cause)}`);
    }
  }

  close(): void {
    if (this.#fd === undefined) return;
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}

/** The number goes before the extension. */
function numbered(path: string, number: number): string {
  const dot = path.lastIndexOf(".");
  return dot > path.lastIndexOf("/") + 1 ? `${path.slice(0, dot)}-${number}${path.slice(dot)}` : `${path}-${number}`;
}

/** One character a byte, so that a name need not be UTF-8. */
const latin = (path: Bytes): string => Buffer.from(path).toString("latin1");

const within = (dir: Bytes | undefined, path: string): string =>
  dir === undefined || path.startsWith("/") ? path : `${latin(dir)}/${path}`;

const cannotOpen = (path: Buffer, reason: string, cause?: unknown): LaboroError =>
  new LaboroError("LABORO_BAD_INPUT", `cannot open the log file ${JSON.stringify(path.toString())}: ${reason}`, {
    cause,
  });

function why(cause: unknown): string {
  const errno = errnoOf(cause);
  if (errno === "ENOENT") return "no such directory";
  if (errno === "ENOTDIR") return "a part of the path is not a directory";
  if (errno === "EACCES") return "permission denied";
  if (errno === "ENOSPC") return "the disk is full";
  return errno ?? String(cause);
}
