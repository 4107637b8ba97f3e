/**
 * Results that are acknowledged and not yet sure to be in files of their own. To have a new file on disk costs the file system a
 * commit; a record in a log whose room was made beforehand costs one write. So a result goes to this log, its `.res` is left to the system to
 * write out, and its runner hears RICEVIS. Only the end of the machine itself can lose what the system has not written out by then: the
 * boot in each record tells a later start that this has happened, and it writes those files anew.
 *
 * A record is a line of JSON and the text of the result. When the log is full the file system is told to write out all that it has, and the
 * log begins anew; what stands behind its end then is older, as the numbers tell.
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { errnoOf, LaboroError } from "../../../base/errors.js";
import { writeFailure, writeFully } from "../../../base/files/durable.js";
import { thisProcess } from "../../../base/files/process-identity.js";
import { encodeRecords, scanRecords } from "../../../base/files/records.js";
import { bytesOf } from "./folder.js";

const FILE = "results.log";
const DEFAULT_CAPACITY = 4 * 1024 * 1024;
/** A sync as quick as this is waited for where it is: to hand it to another thread would take as long. */
const INLINE_SYNC_MS = 0.5;
const sync = promisify(fs.fdatasync);

interface RecordHeader {
  readonly number: number;
  readonly boot: string;
  /** One character a byte. */
  readonly name: string;
}

interface PendingRecord {
  readonly payload: Buffer;
  readonly resolve: () => void;
  readonly reject: (cause: unknown) => void;
}

export class ResultLog {
  readonly #path: string;
  readonly #outputs: string;
  readonly #fd: number;
  readonly #capacity: number;
  readonly #boot: string;
  #number = 0;
  #at = 0;
  #waiting: PendingRecord[] = [];
  #busy = false;
  /** In the log, and not yet in files of their own. */
  #unpublished = 0;
  #failed: LaboroError | undefined;
  /** About as many syncs take longer as do not; a few long ones, of a machine that is busy, tell nothing of the disk. */
  #typicalSyncMs = 0;

  /**
   * In the folder `home`, which is this process's alone, for results below `outputs`. The log of an earlier process gives way, after
   * `recoverResults`; what it told of may still be on its way to the disk, and is waited for.
   */
  static async open(home: string, outputs: string, capacity = DEFAULT_CAPACITY): Promise<ResultLog> {
    const path = `${home}/${FILE}`;
    if (fs.existsSync(path)) await syncFileSystem(outputs);
    return new ResultLog(path, outputs, capacity);
  }

  private constructor(path: string, outputs: string, capacity: number) {
    this.#path = path;
    this.#outputs = outputs;
    this.#capacity = capacity;
    this.#boot = thisBoot();
    try {
      this.#fd = fs.openSync(this.#path, "w", 0o600);
      writeFully(this.#fd, Buffer.alloc(capacity), 0);
      fs.fsyncSync(this.#fd);
    } catch (cause) {
      throw writeFailure(cause, `cannot write ${this.#path}`);
    }
  }

  /** True where a result of so many bytes fits. */
  fits(bytes: number): boolean {
    return bytes <= this.#capacity / 4;
  }

  /** Resolves when the result is on disk here. `published` is to follow. */
  add(name: string, text: Buffer): Promise<void> {
    const head = Buffer.from(`${JSON.stringify({ number: ++this.#number, boot: this.#boot, name })}\n`);
    return new Promise((kept, failed) => {
      this.#waiting.push({ payload: Buffer.concat([head, text]), resolve: kept, reject: failed });
      if (!this.#busy) void this.#flushPending();
    });
  }

  /** One that was added has a file of its own, or is not wanted. */
  published(): void {
    this.#unpublished--;
  }

  async #flushPending(): Promise<void> {
    this.#busy = true;
    for (let batch = this.#waiting; batch.length > 0; batch = this.#waiting) {
      this.#waiting = [];
      try {
        if (this.#failed !== undefined) throw this.#failed;
        await this.#write(encodeRecords(batch.map(({ payload }) => payload)));
        this.#unpublished += batch.length;
        for (const { resolve: kept } of batch) kept();
      } catch (cause) {
        // After a sync that failed nobody knows what is on disk.
        this.#failed = writeFailure(cause, `cannot write ${this.#path}`);
        for (const { reject: failed } of batch) failed(this.#failed);
      }
    }
    this.#busy = false;
  }

  async #write(records: Buffer): Promise<void> {
    if (this.#at + records.length > this.#capacity) await this.#startOver();
    writeFully(this.#fd, records, this.#at);
    this.#at += records.length;
    const begun = performance.now();
    if (this.#typicalSyncMs < INLINE_SYNC_MS) fs.fdatasyncSync(this.#fd);
    else await sync(this.#fd);
    const change = performance.now() - begun > this.#typicalSyncMs ? INLINE_SYNC_MS / 10 : -INLINE_SYNC_MS / 10;
    this.#typicalSyncMs = Math.min(2 * INLINE_SYNC_MS, this.#typicalSyncMs + change);
  }

  async #startOver(): Promise<void> {
    while (this.#unpublished > 0) await new Promise((resolve) => setImmediate(resolve));
    await syncFileSystem(this.#outputs);
    this.#at = 0;
  }

  /** All results are in their files, on disk; the log is needed no more. */
  async close(): Promise<void> {
    fs.closeSync(this.#fd);
    await syncFileSystem(this.#outputs);
    fs.rmSync(this.#path, { force: true });
  }
}

/**
 * After the end of the machine: results that are in the log and not, or not whole, in their files get these. Says how many. A file that somebody
 * has removed meanwhile, with the machine running, stays removed.
 */
export function recoverResults(home: string, outputs: string): number {
  const path = `${home}/${FILE}`;
  let fd: number;
  try {
    fd = fs.openSync(path, "r");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return 0;
    throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot read ${path}: ${String(cause)}`, { cause });
  }
  try {
    const latest = new Map<string, { readonly number: number; readonly at: number; readonly boot: string }>();
    scanRecords(fd, {
      record: (at, payload) => {
        const { name, number, boot } = readRecord(payload).head;
        if ((latest.get(name)?.number ?? 0) < number) latest.set(name, { number, boot, at });
        return true;
      },
    });
    const boot = thisBoot();
    const lost = [...latest].filter(([, record]) => record.boot !== boot).map(([, { at }]) => at);
    return lost.filter((at) => restore(fd, at, outputs)).length;
  } finally {
    fs.closeSync(fd);
  }
}

/** True where the result was not there. */
function restore(fd: number, from: number, outputs: string): boolean {
  let restored = false;
  scanRecords(
    fd,
    {
      record: (_at, payload) => {
        const { head, text } = readRecord(payload);
        const path = `${outputs}/${head.name}.res`;
        if (fs.statSync(bytesOf(path), { throwIfNoEntry: false })?.size === text.length) return false;
        fs.mkdirSync(bytesOf(dirname(path)), { recursive: true });
        fs.writeFileSync(bytesOf(path), text, { flush: true });
        restored = true;
        return false;
      },
    },
    { from },
  );
  return restored;
}

function readRecord(payload: Buffer): { readonly head: RecordHeader; readonly text: Buffer } {
  const end = payload.indexOf("\n");
  return { head: JSON.parse(payload.toString("utf8", 0, end)) as RecordHeader, text: payload.subarray(end + 1) };
}

/** Where it cannot be known, each start counts as one. */
const thisBoot = (): string => thisProcess().boot ?? randomUUID();

/** All that the file system of this folder has in memory goes to its disk. Node has no syncfs(2). */
async function syncFileSystem(folder: string): Promise<void> {
  const ways = [["-f", folder], []];
  for (const [at, way] of ways.entries()) {
    const failure = await new Promise<string | undefined>((resolve) => {
      const child = spawn("sync", way, { stdio: "ignore" });
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) => resolve(code === 0 ? undefined : `it ended with ${code ?? signal}`));
    });
    if (failure === undefined) return;
    if (at === ways.length - 1)
      throw new LaboroError("LABORO_STORE_FAILED", `results cannot be written out: ${failure}`);
  }
}
