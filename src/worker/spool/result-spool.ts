/**
 * Finished results until the broker has acknowledged them, in one append-only file.
 *
 * An entry is waiting (not on disk yet), being written, written, or settled (acknowledged, and gone from here). One
 * write is in flight at a time. It takes all waiting entries, with the numbers of written entries that were settled
 * meanwhile, and ends with a sync. Then the next begins. So the busier the worker, the larger the group. An entry
 * settled while it waits is never written. Settled numbers alone cause no write: if they are lost, a result is
 * delivered twice, and the broker ignores the second.
 *
 * The file is truncated when no entry in it is needed, and rewritten when most are not. It is also rewritten after
 * damage or a failed sync, because the visible content may then differ from the content on disk.
 *
 * If a write fails, its entries wait again and `failing` is the error. It is retried with the next append and after an
 * interval, until it succeeds. No entry is dropped.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { LaboroError } from "../../base/errors.js";
import { syncDirectory, writeFailure } from "../../base/files/durable.js";
import { encodeBatch, entrySize, readSpool, type SpoolDamage, type SpoolEntry } from "./spool-format.js";

interface ResultSpoolSettings {
  /** How long after a failed write it is retried. */
  readonly retryMs?: number;
  /** A file smaller than this is not rewritten. */
  readonly rewriteFrom?: number;
  /** Called when writing begins to fail and when it works again. */
  readonly onFailing?: (error: LaboroError | undefined) => void;
}

export interface UnacknowledgedResult {
  readonly key: string;
  readonly payload: Uint8Array;
}

export interface LoadedSpool {
  readonly spool: ResultSpool;
  /** What was not acknowledged, oldest first. */
  readonly results: readonly UnacknowledgedResult[];
  readonly damage: readonly SpoolDamage[];
}

interface PendingFlush {
  readonly upTo: number;
  readonly resolve: () => void;
  readonly reject: (error: LaboroError) => void;
}

const MAX_WRITE = 2 * 1024 * 1024;
/** While writing fails, appends do not try it more often than this. */
const PAUSE_MS = 50;

const write = promisify(fs.write);
const datasync = promisify(fs.fdatasync);
const truncate = promisify(fs.ftruncate);

export class ResultSpool {
  readonly #path: string;
  readonly #retryMs: number;
  readonly #rewriteFrom: number;
  readonly #onFailing: (error: LaboroError | undefined) => void;
  /** Everything not acknowledged, by key. */
  readonly #entries = new Map<string, SpoolEntry>();
  #waiting: SpoolEntry[] = [];
  /** Numbers of entries in the file that were settled since, which the file does not say yet. */
  #settled: number[] = [];
  #flushes: PendingFlush[] = [];
  #fd: number;
  #end = 0;
  /** Bytes of the file that are still needed. */
  #liveBytes = 0;
  #lastNumber = 0;
  #mustRewrite = false;
  #running: Promise<void> | undefined;
  #failing: LaboroError | undefined;
  #failedAt = 0;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(path: string, fd: number, settings: ResultSpoolSettings) {
    this.#path = path;
    this.#fd = fd;
    this.#retryMs = settings.retryMs ?? 1000;
    this.#rewriteFrom = settings.rewriteFrom ?? 1024 * 1024;
    this.#onFailing = settings.onFailing ?? (() => {});
  }

  /** Opens or creates the file, and returns what an earlier process left in it. */
  static load(path: string, settings: ResultSpoolSettings = {}): LoadedSpool {
    try {
      fs.rmSync(temporaryPath(path), { force: true });
      const fd = fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600);
      syncDirectory(dirname(path));
      const contents = readSpool(fd);
      fs.ftruncateSync(fd, contents.end);
      const spool = new ResultSpool(path, fd, settings);
      spool.#end = contents.end;
      spool.#lastNumber = contents.lastNumber;
      for (const { number, key, payload } of contents.results) {
        const entry: SpoolEntry = { number, key, payload, state: "written" };
        spool.acknowledge(key);
        spool.#entries.set(key, entry);
        spool.#liveBytes += entrySize(entry);
      }
      spool.#mustRewrite = contents.damage.length > 0;
      spool.#startWriting();
      return { spool, results: spool.unacknowledged(), damage: contents.damage };
    } catch (cause) {
      if (cause instanceof LaboroError) throw cause;
      throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot open the spool ${path}: ${String(cause)}`, { cause });
    }
  }

  /** How many results are not acknowledged. */
  get size(): number {
    return this.#entries.size;
  }

  /** Why the last write failed; undefined while writing works. */
  get failing(): LaboroError | undefined {
    return this.#failing;
  }

  unacknowledged(): UnacknowledgedResult[] {
    return Array.from(this.#entries.values(), ({ key, payload }) => ({ key, payload }));
  }

  /** Takes a result; a second one with the same key replaces the first. */
  append(key: string, payload: Uint8Array): void {
    if (this.#closed) throw new LaboroError("LABORO_INTERNAL", "the spool of results is closed");
    this.acknowledge(key);
    const entry: SpoolEntry = { number: ++this.#lastNumber, key, payload, state: "waiting" };
    this.#entries.set(key, entry);
    this.#waiting.push(entry);
    this.#startWriting();
  }

  acknowledge(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    if (entry.state === "written") {
      this.#settled.push(entry.number);
      this.#liveBytes -= entrySize(entry);
    }
    entry.state = "settled";
    if (this.#entries.size === 0 && (this.#end > 0 || this.#flushes.length > 0)) this.#startWriting();
  }

  /** Resolves when all appended entries are on disk or acknowledged. Rejects only if the spool is closed first. */
  flush(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#flushes.push({ upTo: this.#lastNumber, resolve, reject });
      this.#startWriting();
    });
  }

  /** Tries once more to write what waits, then closes. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#startWritingNow();
    await this.#running;
    this.#closed = true;
    clearTimeout(this.#retry);
    const reason = this.#failing ?? new LaboroError("LABORO_INTERNAL", "the spool of results was closed");
    for (const { reject } of this.#flushes.splice(0)) reject(reason);
    fs.closeSync(this.#fd);
  }

  #startWriting(): void {
    if (this.#running !== undefined || this.#closed) return;
    if (this.#failing !== undefined && performance.now() - this.#failedAt < PAUSE_MS) return;
    // Begins after the caller's turn, so that all it appends goes into the first write.
    this.#running = Promise.resolve().then(() => this.#writeLoop());
  }

  /** Also shortly after a failure. */
  #startWritingNow(): void {
    this.#failedAt = Number.NEGATIVE_INFINITY;
    this.#startWriting();
  }

  async #writeLoop(): Promise<void> {
    for (;;) {
      const batch = this.#takeBatch();
      try {
        if (this.#entries.size === 0) await this.#empty();
        else if (this.#mustRewrite || this.#mostlyUnwanted) await this.#rewrite(batch);
        else if (batch.length > 0) await this.#append(batch);
        this.#succeeded();
      } catch (cause) {
        this.#failed(batch, writeFailure(cause, `cannot write the spool ${this.#path}`));
        break;
      }
      if (this.#waiting.length === 0 && (this.#entries.size > 0 || this.#end === 0)) break;
    }
    this.#running = undefined;
  }

  get #mostlyUnwanted(): boolean {
    return this.#end >= this.#rewriteFrom && this.#liveBytes * 4 < this.#end;
  }

  #takeBatch(): SpoolEntry[] {
    const batch: SpoolEntry[] = [];
    let bytes = 0;
    let taken = 0;
    for (const entry of this.#waiting) {
      if (bytes >= MAX_WRITE) break;
      taken++;
      if (entry.state === "settled") continue;
      entry.state = "writing";
      batch.push(entry);
      bytes += entrySize(entry);
    }
    this.#waiting = this.#waiting.slice(taken);
    return batch;
  }

  async #append(batch: readonly SpoolEntry[]): Promise<void> {
    const settled = this.#settled.length;
    const bytes = encodeBatch(batch, this.#settled);
    try {
      await writeAll(this.#fd, bytes, this.#end);
    } catch (cause) {
      // A partial record that cannot be cut off must not precede the next one.
      await truncate(this.#fd, this.#end).catch(() => {
        this.#mustRewrite = true;
      });
      throw cause;
    }
    await this.#sync(this.#fd);
    this.#end += bytes.length;
    this.#settled.splice(0, settled);
    this.#written(batch);
  }

  /** Writes all needed entries to a new file, which replaces the old one. */
  async #rewrite(batch: readonly SpoolEntry[]): Promise<void> {
    const old = Array.from(this.#entries.values()).filter((entry) => entry.state === "written");
    const draft = temporaryPath(this.#path);
    const fd = fs.openSync(draft, "w+", 0o600);
    let end = 0;
    try {
      const all = [...old, ...batch];
      for (let from = 0; from < all.length; from += 10_000) {
        const bytes = encodeBatch(all.slice(from, from + 10_000), []);
        await writeAll(fd, bytes, end);
        end += bytes.length;
      }
      await datasync(fd);
      await promisify(fs.rename)(draft, this.#path);
    } catch (cause) {
      fs.closeSync(fd);
      fs.rmSync(draft, { force: true });
      throw cause;
    }
    fs.closeSync(this.#fd);
    this.#fd = fd;
    this.#end = end;
    this.#settled = [];
    this.#liveBytes = 0;
    this.#written(old);
    this.#written(batch);
    this.#mustRewrite = true;
    const directory = await fs.promises.open(dirname(this.#path), "r");
    await directory.sync().finally(() => directory.close());
    this.#mustRewrite = false;
  }

  async #empty(): Promise<void> {
    if (this.#end === 0) return;
    await truncate(this.#fd, 0);
    this.#end = 0;
    this.#settled = [];
    this.#mustRewrite = false;
  }

  async #sync(fd: number): Promise<void> {
    try {
      await datasync(fd);
    } catch (cause) {
      this.#mustRewrite = true;
      throw cause;
    }
  }

  /** These are in the file now. Those acknowledged during the write are settled at once. */
  #written(entries: readonly SpoolEntry[]): void {
    for (const entry of entries) {
      if (entry.state === "settled") {
        this.#settled.push(entry.number);
      } else {
        entry.state = "written";
        this.#liveBytes += entrySize(entry);
      }
    }
  }

  #succeeded(): void {
    if (this.#failing !== undefined) {
      this.#failing = undefined;
      this.#onFailing(undefined);
    }
    const durable = (this.#waiting[0]?.number ?? this.#lastNumber + 1) - 1;
    const done = this.#flushes.filter(({ upTo }) => upTo <= durable);
    if (done.length === 0) return;
    this.#flushes = this.#flushes.filter(({ upTo }) => upTo > durable);
    for (const { resolve } of done) resolve();
  }

  #failed(batch: readonly SpoolEntry[], error: LaboroError): void {
    const again = batch.filter((entry) => entry.state === "writing");
    for (const entry of again) entry.state = "waiting";
    this.#waiting = [...again, ...this.#waiting];
    const first = this.#failing === undefined;
    this.#failing = error;
    this.#failedAt = performance.now();
    if (first) this.#onFailing(error);
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#startWritingNow(), this.#retryMs).unref();
  }
}

const temporaryPath = (path: string): string => `${path}.new`;

async function writeAll(fd: number, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await write(fd, bytes, done, bytes.length - done, position + done);
    if (bytesWritten === 0) throw new LaboroError("LABORO_STORE_FAILED", "the system wrote nothing and gave no reason");
    done += bytesWritten;
  }
}
