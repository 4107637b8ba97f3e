/**
 * The results of a runner. Long output goes to a file while the job runs. A result that cannot be delivered at once
 * goes to the spool and stays there until RICEVIS. The next runner of the same host for the same manager delivers it
 * when it gets the same script under the same name. A spooled result is a line of JSON, and then its text.
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { LaboroError } from "../../../base/errors.js";
import { syncDirectory, writeFully } from "../../../base/files/durable.js";
import { acquireLock, type Lock } from "../../../base/files/lock.js";
import { openPrivateDirectory } from "../../../base/files/private-directory.js";
import type { Status } from "../messages.js";
import { ResStatusReader } from "../res-text.js";
import type { Job } from "./client-state-machine.js";

/** More output than this goes to a file. */
const IN_MEMORY = 1024 * 1024;

export interface Outcome {
  /** One character a byte. */
  readonly name: string;
  readonly status: Status;
  scriptHash(): string;
  /** Bytes of the text. */
  readonly size: number;
  chunks(): Iterable<Buffer> | AsyncIterable<Buffer>;
  /** Removes its file. */
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

  /** `path`: for long output. */
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
      // Its output is lost: it must not count as a success.
      this.#writeError = cause instanceof Error ? cause.message : String(cause);
    }
  }

  #spill(): number {
    const fd = fs.openSync(this.#path, "w", 0o600);
    writeFully(fd, Buffer.concat(this.#pieces), 0);
    this.#pieces = [];
    return fd;
  }

  /** `header`: the text before the output, with one character per byte. */
  outcome(job: Job, header: string): Outcome {
    const { name } = job;
    const scriptHash = (): string => jobHash(job);
    const { status } = this;
    const lost = this.#writeError === undefined ? "" : `\nrunexp: the output could not be kept: ${this.#writeError}\n`;
    const head = Buffer.from(header, "latin1");
    const path = this.#path;
    const discard = (): void => fs.rmSync(path, { force: true });
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    if (this.#fd !== undefined && lost === "")
      return {
        name,
        scriptHash,
        status,
        size: head.length + this.#size,
        chunks: () => fromFile(path, 0, head),
        discard,
      };
    if (this.#fd !== undefined) discard();
    const whole = Buffer.concat([head, ...this.#pieces, Buffer.from(lost)]);
    return { name, scriptHash, status, size: whole.length, chunks: () => [whole], discard: () => {} };
  }
}

/** A result whose text is in a file from `offset` on. */
function outcomeInFile(of: Pick<Outcome, "name" | "status" | "scriptHash">, path: string, offset: number): Outcome {
  const size = fs.statSync(path).size - offset;
  return {
    ...of,
    size,
    chunks: () => (size <= IN_MEMORY ? [fs.readFileSync(path).subarray(offset)] : fromFile(path, offset)),
    discard: () => fs.rmSync(path, { force: true }),
  };
}

async function* fromFile(path: string, start: number, head?: Buffer): AsyncIterable<Buffer> {
  if (head !== undefined) yield head;
  for await (const piece of fs.createReadStream(path, { start, highWaterMark: 256 * 1024 })) yield piece as Buffer;
}

const MAX_LINE = 65_536;
const RETENTION_MS = 30 * 24 * 3_600_000;
/** Runners of one host for one manager at a time. */
const MAX_RUNNERS_PER_HOST = 100;

export class RunnerSpool {
  /** For scripts and long outputs. */
  readonly jobs: string;
  readonly #results: string;
  readonly #refused: string;
  readonly #lock: Lock;
  #number = 0;

  private constructor(dir: string, lock: Lock) {
    this.#lock = lock;
    this.jobs = join(dir, "jobs");
    this.#results = join(dir, "results");
    this.#refused = join(dir, "refused");
    // Scripts of an earlier process are no longer needed.
    fs.rmSync(this.jobs, { recursive: true, force: true });
    fs.mkdirSync(this.jobs, { mode: 0o700 });
    fs.mkdirSync(this.#results, { recursive: true, mode: 0o700 });
  }

  /** The folder at this path, or one beside it if another runner has locked that. */
  static open(path: string): RunnerSpool {
    for (let number = 1; ; number++) {
      const dir = number === 1 ? path : `${path}-${number}`;
      openPrivateDirectory(resolve(dir));
      try {
        return new RunnerSpool(dir, acquireLock(join(dir, "lock"), `the runner directory ${dir}`));
      } catch (cause) {
        const taken = cause instanceof LaboroError && cause.code === "LABORO_DATA_IN_USE";
        if (!taken || number === MAX_RUNNERS_PER_HOST) throw cause;
      }
    }
  }

  /** Results that an earlier process did not deliver. Old ones are removed. */
  undelivered(): Outcome[] {
    const found: Outcome[] = [];
    for (const name of fs.readdirSync(this.#results)) {
      const path = join(this.#results, name);
      this.#number = Math.max(this.#number, Number.parseInt(name, 10) || 0);
      const young = Date.now() - fs.statSync(path).mtimeMs < RETENTION_MS;
      const outcome = young && name.endsWith(".result") ? readResult(path) : undefined;
      if (outcome === undefined) fs.rmSync(path, { force: true });
      else found.push(outcome);
    }
    return found;
  }

  /** Returns the same result, on disk. */
  async save(outcome: Outcome): Promise<Outcome> {
    const path = join(this.#results, `${++this.#number}.result`);
    const tempFile = `${path}.new`;
    const { name, status, size } = outcome;
    const script = outcome.scriptHash();
    const line = Buffer.from(`${JSON.stringify({ name, status, script, size })}\n`);
    await writeResult(tempFile, line, outcome);
    fs.renameSync(tempFile, path);
    syncDirectory(this.#results);
    outcome.discard();
    return outcomeInFile({ name, status, scriptHash: () => script }, path, line.length);
  }

  /** For a result that the manager refuses: kept for the operator. Returns the path. */
  async saveRefused(outcome: Outcome): Promise<string> {
    fs.mkdirSync(this.#refused, { recursive: true, mode: 0o700 });
    const path = join(this.#refused, `${Date.now()}-${++this.#number}.res`);
    await writeResult(path, Buffer.alloc(0), outcome);
    syncDirectory(this.#refused);
    outcome.discard();
    return path;
  }

  close(): void {
    fs.rmSync(this.jobs, { recursive: true, force: true });
    this.#lock.release();
  }
}

async function writeResult(path: string, head: Buffer, outcome: Outcome): Promise<void> {
  const fd = fs.openSync(path, "w", 0o600);
  try {
    let at = head.length;
    writeFully(fd, head, 0);
    for await (const piece of outcome.chunks()) {
      writeFully(fd, piece, at);
      at += piece.length;
    }
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

/** Undefined for an incomplete one, whose process died. */
function readResult(path: string): Outcome | undefined {
  const fd = fs.openSync(path, "r");
  const start = Buffer.alloc(MAX_LINE);
  try {
    const end = start.subarray(0, fs.readSync(fd, start, 0, MAX_LINE, 0)).indexOf("\n");
    const head = JSON.parse(start.toString("utf8", 0, Math.max(0, end))) as Record<string, unknown>;
    const { name, status, script, size } = head;
    if (typeof name !== "string" || typeof script !== "string") return undefined;
    if (status !== "success" && status !== "failure") return undefined;
    const outcome = outcomeInFile({ name, status, scriptHash: () => script }, path, end + 1);
    return outcome.size === size ? outcome : undefined;
  } catch {
    return undefined;
  } finally {
    fs.closeSync(fd);
  }
}
