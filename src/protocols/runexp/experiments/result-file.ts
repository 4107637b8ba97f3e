/**
 * A `.res` file on its way: whole and on disk, or not there at all. What is short stays in memory until its end, and where there is a log
 * it is on disk by that: a result is waited for by a runner's whole connection.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { errnoOf } from "../../../base/errors.js";
import { syncDirectory, writeFailure, writeFully } from "../../../base/files/durable.js";
import type { ResultFile } from "../broker/experiments.js";
import { bytesOf, shown } from "./folder.js";
import type { ResultLog } from "./result-log.js";

const IN_MEMORY = 256 * 1024;
/** So many new files lie ready; no longer than this is spent on them at a time, and so long nothing must have come. */
const READY = 256;
const MAKING_MS = 50;
const QUIET_MS = 200;
const sync = promisify(fs.fsync);

interface Draft {
  readonly path: string;
  readonly fd: number;
}

/**
 * Where results are written before they get their names. Some new files lie ready, made when there was time: at the start, and after a
 * moment without a result. On some file systems to make one is the dearest part of a short result.
 */
export class Drafts {
  readonly #folder: string;
  readonly #ready: string[] = [];
  readonly #quiet: NodeJS.Timeout;
  #number = 0;
  /** That will be needed, beside those that are ready. */
  #wanted: number;

  /** A path of bytes, on the same file system as the results; `wanted` is how many there will be. */
  constructor(folder: string, wanted = 0) {
    this.#folder = folder;
    this.#wanted = wanted;
    this.#makeReady();
    this.#quiet = setTimeout(() => this.#makeReady(), QUIET_MS).unref();
  }

  take(): Draft {
    const path = this.#ready.pop() ?? this.#next();
    if (this.#wanted > 0) this.#quiet.refresh();
    return { path, fd: fs.openSync(bytesOf(path), "w", 0o666) };
  }

  close(): void {
    clearTimeout(this.#quiet);
  }

  #next(): string {
    this.#wanted--;
    return `${this.#folder}/${++this.#number}.res`;
  }

  #makeReady(): void {
    const until = performance.now() + MAKING_MS;
    while (this.#ready.length < READY && this.#wanted > 0 && performance.now() < until) {
      const path = this.#next();
      try {
        fs.closeSync(fs.openSync(bytesOf(path), "w", 0o666));
      } catch {
        // Who takes the next one is told why.
        return;
      }
      this.#ready.push(path);
    }
  }
}

export interface ResFilePlace {
  /** A path of bytes. */
  readonly outputs: string;
  readonly drafts: Drafts;
  readonly log?: ResultLog;
}

export class ResFile implements ResultFile {
  readonly #name: string;
  readonly #path: string;
  readonly #place: ResFilePlace;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #written = 0;
  #draft: Draft | undefined;
  #logged: ResultLog | undefined;

  /** `name` is one of bytes. */
  constructor(name: string, place: ResFilePlace) {
    this.#name = name;
    this.#path = `${place.outputs}/${name}.res`;
    this.#place = place;
  }

  prepare(): void {
    try {
      this.#draft ??= this.#place.drafts.take();
    } catch {
      // It is tried again when there is something to write, and then told.
    }
  }

  write(bytes: Buffer): void {
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes > IN_MEMORY) this.#flush();
  }

  async sync(): Promise<void> {
    const { log } = this.#place;
    if (this.#written === 0 && log?.takes(this.#waitingBytes)) {
      const text = Buffer.concat(this.#waiting);
      // First: a result that cannot get a file of its own is not to be waited for by the log.
      this.#flush();
      await log.add(this.#name, text);
      this.#logged = log;
      return;
    }
    this.#flush();
    try {
      if (this.#draft !== undefined) await sync(this.#draft.fd);
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
    const draft = this.#close();
    if (draft === undefined) return;
    const [from, to] = [bytesOf(draft.path), bytesOf(this.#path)];
    try {
      fs.renameSync(from, to);
    } catch (cause) {
      if (errnoOf(cause) !== "ENOENT") throw this.#failure(cause);
      fs.mkdirSync(bytesOf(dirname(this.#path)), { recursive: true });
      fs.renameSync(from, to);
    }
    if (this.#logged === undefined) this.#syncNames();
    this.#leaveLog();
  }

  /** Where no log has it, its name must be on disk too, and those of the folders that it lies in. */
  #syncNames(): void {
    const { outputs } = this.#place;
    for (let folder = dirname(this.#path); folder.length >= outputs.length; folder = dirname(folder)) {
      syncDirectory(bytesOf(folder));
      if (folder === dirname(folder)) return;
    }
  }

  abandon(): void {
    this.#waiting = [];
    const draft = this.#close();
    if (draft !== undefined) fs.rmSync(bytesOf(draft.path), { force: true });
    this.#leaveLog();
  }

  #leaveLog(): void {
    this.#logged?.published();
    this.#logged = undefined;
  }

  #close(): Draft | undefined {
    const draft = this.#draft;
    this.#draft = undefined;
    if (draft !== undefined) fs.closeSync(draft.fd);
    return draft;
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#waiting.splice(0));
    this.#waitingBytes = 0;
    try {
      this.#draft ??= this.#place.drafts.take();
      writeFully(this.#draft.fd, bytes, this.#written);
      this.#written += bytes.length;
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  #failure(cause: unknown): Error {
    return writeFailure(cause, `cannot write ${shown(this.#path)}`);
  }
}
