/** The output of a job, and the result that is made of it. Long output goes to a file. */

import { createHash } from "node:crypto";
import { closeSync, createReadStream, openSync, readFileSync, rmSync, statSync } from "node:fs";
import { writeFully } from "../../../base/files/durable.js";
import type { Status } from "../messages.js";
import { ResStatusReader } from "../res-text.js";
import type { Job } from "./client-state-machine.js";

/** More output than this goes to a file. */
const IN_MEMORY = 1024 * 1024;

export interface Outcome {
  /** One character a byte. */
  readonly name: string;
  readonly status: Status;
  /** What was run: the hash of the script. */
  scriptHash(): string;
  /** Of the whole text. */
  readonly size: number;
  /** The text in pieces. */
  chunks(): Iterable<Buffer> | AsyncIterable<Buffer>;
  /** It is delivered: its file goes. */
  discard(): void;
}

export const jobHash = ({ kind, content }: Pick<Job, "kind" | "content">): string =>
  createHash("sha256").update(`${kind}\0`).update(content).digest("base64url");

export class JobOutput {
  readonly #path: string;
  readonly #statusReader = new ResStatusReader();
  #pieces: Buffer[] = [];
  #size = 0;
  #fd: number | undefined;
  #writeError: string | undefined;

  /** `path`: where it goes if it is long. */
  constructor(path: string) {
    this.#path = path;
  }

  get status(): Status {
    return this.#writeError === undefined ? this.#statusReader.status : "failure";
  }

  push(bytes: Buffer): void {
    if (this.#writeError !== undefined) return;
    this.#statusReader.push(bytes);
    if (this.#fd === undefined && this.#size + bytes.length <= IN_MEMORY) {
      this.#pieces.push(bytes);
      this.#size += bytes.length;
      return;
    }
    try {
      this.#fd ??= this.#spill();
      writeFully(this.#fd, bytes, this.#size);
      this.#size += bytes.length;
    } catch (cause) {
      // The job has run, but its output is lost: it must not count as a success.
      this.#writeError = cause instanceof Error ? cause.message : String(cause);
    }
  }

  #spill(): number {
    const fd = openSync(this.#path, "w", 0o600);
    let at = 0;
    for (const piece of this.#pieces) {
      writeFully(fd, piece, at);
      at += piece.length;
    }
    this.#pieces = [];
    return fd;
  }

  /** `header` is what stands before the output, with one character a byte. */
  outcome(job: Job, header: string): Outcome {
    const { name } = job;
    const scriptHash = (): string => jobHash(job);
    const lost = this.#writeError === undefined ? "" : `\nrunexp: the output could not be kept: ${this.#writeError}\n`;
    const head = Buffer.from(header, "latin1");
    if (this.#fd === undefined || lost !== "") {
      if (this.#fd !== undefined) {
        closeSync(this.#fd);
        rmSync(this.#path, { force: true });
      }
      const whole = Buffer.concat([head, ...this.#pieces, Buffer.from(lost)]);
      return { name, scriptHash, status: this.status, size: whole.length, chunks: () => [whole], discard: () => {} };
    }
    closeSync(this.#fd);
    const path = this.#path;
    return {
      ...{ name, scriptHash },
      status: this.status,
      size: head.length + this.#size,
      chunks: () => fromFile(path, 0, head),
      discard: () => rmSync(path, { force: true }),
    };
  }
}

/** The text of a result that lies in a file from `offset` on. */
export function outcomeInFile(
  of: Pick<Outcome, "name" | "status" | "scriptHash">,
  path: string,
  offset: number,
): Outcome {
  const size = statSync(path).size - offset;
  return {
    ...of,
    size,
    chunks: () => (size <= IN_MEMORY ? [readFileSync(path).subarray(offset)] : fromFile(path, offset)),
    discard: () => rmSync(path, { force: true }),
  };
}

async function* fromFile(path: string, start: number, head?: Buffer): AsyncIterable<Buffer> {
  if (head !== undefined) yield head;
  for await (const piece of createReadStream(path, { start, highWaterMark: 256 * 1024 })) yield piece as Buffer;
}
