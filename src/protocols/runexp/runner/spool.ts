/**
 * Where a runner keeps its files: scripts while they run, and results that the manager has not taken. A result goes to disk when it
 * cannot be delivered at once, and stays there until RICEVIS. The next runner of the same host for the same manager delivers it when it
 * gets the same script under the same name.
 * A line of JSON says whose it is, the text of the result follows.
 */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { LaboroError } from "../../../base/errors.js";
import { syncDirectory, writeFully } from "../../../base/files/durable.js";
import { acquireLock, type Lock } from "../../../base/files/lock.js";
import { openPrivateDirectory } from "../../../base/files/private-directory.js";
import { type Outcome, outcomeInFile } from "./outcome.js";

const MAX_LINE = 65_536;
const RETENTION_MS = 30 * 24 * 3_600_000;
/** Runners of one host for one manager at one time. */
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

  /** The folder at this path, or one beside it where another runner has that. */
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

  /** Results that an earlier process did not deliver. Those older than a month are removed. */
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

  /** The same result, on disk. */
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

  /** The manager does not take it: it is kept for a person to look at. */
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

/** Undefined for one that is not whole: its process died before it was. */
function readResult(path: string): Outcome | undefined {
  const fd = fs.openSync(path, "r");
  const start = Buffer.alloc(MAX_LINE);
  let length: number;
  try {
    length = fs.readSync(fd, start, 0, MAX_LINE, 0);
  } finally {
    fs.closeSync(fd);
  }
  const end = start.subarray(0, length).indexOf("\n");
  try {
    const head = JSON.parse(start.toString("utf8", 0, Math.max(0, end))) as Record<string, unknown>;
    const { name, status, script, size } = head;
    if (typeof name !== "string" || typeof script !== "string") return undefined;
    if (status !== "success" && status !== "failure") return undefined;
    const outcome = outcomeInFile({ name, status, scriptHash: () => script }, path, end + 1);
    return outcome.size === size ? outcome : undefined;
  } catch {
    return undefined;
  }
}
