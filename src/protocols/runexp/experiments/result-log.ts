/**
 * Results that are acknowledged and whose own files may not be on disk yet. To put a new file on disk costs the file system a commit; a
 * record in a log of preallocated size costs one write. So a result goes to this log, its `.res` file is written without a sync, and its
 * runner gets RICEVIS. Only a crash of the machine can lose such a file: the boot id in each record shows a later start that there was one,
 * and it writes those files again.
 *
 * A record is a line of JSON and the text of the result. When the log is full, the file system is synced and the log starts again at its
 * beginning; records behind its end are older, which their numbers show.
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { errnoOf, LaboroError } from "../../../base/errors.js";
import { writeFailure, writeFully } from "../../../base/files/durable.js";
import { bootId } from "../../../base/files/lock.js";
import { encodeRecords, scanRecords } from "../../../base/files/records.js";
import { bytesOf } from "./folder.js";

const FILE = "results.log";
const DEFAULT_CAPACITY = 4 * 1024 * 1024;
/** A sync as quick as this is done inline: to hand it to another thread would take as long. */
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
  /** About the median: a few long syncs of a busy machine do not change it. */
  #typicalSyncMs = 0;

  /**
   * In the folder `home`, which is this process's alone, for results below `outputs`. The log of an earlier process is replaced, after
   * `recoverResults`; its results may not be on disk yet, so the file system is synced first.
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
    return new Promise((resolve, reject) => {
      this.#waiting.push({ payload: Buffer.concat([head, text]), resolve, reject });
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
        for (const { resolve } of batch) resolve();
      } catch (cause) {
        // After a sync that failed nobody knows what is on disk.
        this.#failed = writeFailure(cause, `cannot write ${this.#path}`);
        for (const { reject } of batch) reject(this.#failed);
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
 * After a crash of the machine: writes the files of results that are in the log and missing or incomplete. Returns how many. A file that
 * was removed while the machine was running stays removed.
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
const thisBoot = (): string => bootId() ?? randomUUID();

/** All that the file system of this folder has in memory goes to its disk. Node has no syncfs(2). */
async function syncFileSystem(folder: string): Promise<void> {
  const argumentLists = [["-f", folder], []];
  for (const [at, args] of argumentLists.entries()) {
    const failure = await new Promise<string | undefined>((resolve) => {
      const child = spawn("sync", args, { stdio: "ignore" });
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) => resolve(code === 0 ? undefined : `it ended with ${code ?? signal}`));
    });
    if (failure === undefined) return;
    if (at === argumentLists.length - 1)
      throw new LaboroError("LABORO_STORE_FAILED", `results cannot be written out: ${failure}`);
  }
}
