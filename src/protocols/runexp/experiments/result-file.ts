/**
 * A `.res` file that is being written: it appears whole and on disk, or not at all. A short result stays in memory until its end, and
 * goes to the log where there is one: a runner's whole connection waits for it.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { errnoOf } from "../../../base/errors.js";
import { syncDirectory, writeFailure, writeFully } from "../../../base/files/durable.js";
import type { ResultFile } from "../broker/experiments.js";
import { bytesOf, displayPath } from "./folder.js";
import type { ResultLog } from "./result-log.js";

const IN_MEMORY = 256 * 1024;
/** How many files are created in advance, how long that may take at a time, and how long no result must have come before. */
const READY_FILES = 256;
const MAKING_MS = 50;
const QUIET_MS = 200;
const sync = promisify(fs.fsync);

interface TempFile {
  readonly path: string;
  readonly fd: number;
}

/**
 * Where results are written before they get their names. Some files are created in advance: at the start, and after a moment without a
 * result. On some file systems the creation of a file is the most expensive part of a short result.
 */
export class TempFilePool {
  readonly #folder: string;
  readonly #ready: string[] = [];
  readonly #quiet: NodeJS.Timeout;
  #number = 0;
  /** Files that will be needed, beside those that are ready. */
  #stillNeeded: number;

  /** A path of bytes, on the same file system as the results; `wanted` is how many there will be. */
  constructor(folder: string, wanted = 0) {
    this.#folder = folder;
    this.#stillNeeded = wanted;
    this.#createReadyFiles();
    this.#quiet = setTimeout(() => this.#createReadyFiles(), QUIET_MS).unref();
  }

  take(): TempFile {
    const path = this.#ready.pop() ?? this.#next();
    if (this.#stillNeeded > 0) this.#quiet.refresh();
    return { path, fd: fs.openSync(bytesOf(path), "w", 0o666) };
  }

  close(): void {
    clearTimeout(this.#quiet);
  }

  #next(): string {
    this.#stillNeeded--;
    return `${this.#folder}/${++this.#number}.res`;
  }

  #createReadyFiles(): void {
    const until = performance.now() + MAKING_MS;
    while (this.#ready.length < READY_FILES && this.#stillNeeded > 0 && performance.now() < until) {
      const path = this.#next();
      try {
        fs.closeSync(fs.openSync(bytesOf(path), "w", 0o666));
      } catch {
        // `take` throws the reason.
        return;
      }
      this.#ready.push(path);
    }
  }
}

export interface ResFileOptions {
  /** A path of bytes. */
  readonly outputs: string;
  readonly tempFiles: TempFilePool;
  readonly log?: ResultLog;
}

export class ResFile implements ResultFile {
  readonly #name: string;
  readonly #path: string;
  readonly #options: ResFileOptions;
  #buffered: Buffer[] = [];
  #bufferedBytes = 0;
  #written = 0;
  #tempFile: TempFile | undefined;
  #pendingLog: ResultLog | undefined;

  /** `name` is one of bytes. */
  constructor(name: string, options: ResFileOptions) {
    this.#name = name;
    this.#path = `${options.outputs}/${name}.res`;
    this.#options = options;
  }

  prepare(): void {
    try {
      this.#tempFile ??= this.#options.tempFiles.take();
    } catch {
      // It is tried again at the first write, which throws.
    }
  }

  write(bytes: Buffer): void {
    this.#buffered.push(bytes);
    this.#bufferedBytes += bytes.length;
    if (this.#bufferedBytes > IN_MEMORY) this.#flush();
  }

  async sync(): Promise<void> {
    const { log } = this.#options;
    if (this.#written === 0 && log?.fits(this.#bufferedBytes)) {
      const text = Buffer.concat(this.#buffered);
      // First: the log must not wait for a result that cannot get a file of its own.
      this.#flush();
      await log.add(this.#name, text);
      this.#pendingLog = log;
      return;
    }
    this.#flush();
    try {
      if (this.#tempFile !== undefined) await sync(this.#tempFile.fd);
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** On disk, and there. */
  async finish(): Promise<void> {
    await this.sync();
    this.publish();
  }

  publish(): void {
    const tempFile = this.#close();
    if (tempFile === undefined) return;
    const [from, to] = [bytesOf(tempFile.path), bytesOf(this.#path)];
    try {
      fs.renameSync(from, to);
    } catch (cause) {
      if (errnoOf(cause) !== "ENOENT") throw this.#failure(cause);
      fs.mkdirSync(bytesOf(dirname(this.#path)), { recursive: true });
      fs.renameSync(from, to);
    }
    if (this.#pendingLog === undefined) this.#syncNames();
    this.#releaseLog();
  }

  /** Where no log has it, its name must be on disk too, and those of the folders that it lies in. */
  #syncNames(): void {
    const { outputs } = this.#options;
    for (let folder = dirname(this.#path); folder.length >= outputs.length; folder = dirname(folder)) {
      syncDirectory(bytesOf(folder));
      if (folder === dirname(folder)) return;
    }
  }

  abandon(): void {
    this.#buffered = [];
    const tempFile = this.#close();
    if (tempFile !== undefined) fs.rmSync(bytesOf(tempFile.path), { force: true });
    this.#releaseLog();
  }

  #releaseLog(): void {
    this.#pendingLog?.published();
    this.#pendingLog = undefined;
  }

  #close(): TempFile | undefined {
    const tempFile = this.#tempFile;
    this.#tempFile = undefined;
    if (tempFile !== undefined) fs.closeSync(tempFile.fd);
    return tempFile;
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#buffered.splice(0));
    this.#bufferedBytes = 0;
    try {
      this.#tempFile ??= this.#options.tempFiles.take();
      writeFully(this.#tempFile.fd, bytes, this.#written);
      this.#written += bytes.length;
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  #failure(cause: unknown): Error {
    return writeFailure(cause, `cannot write ${displayPath(this.#path)}`);
  }
}
