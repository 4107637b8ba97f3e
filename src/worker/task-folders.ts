/**
 * The folders in which tasks with files run. Files sent with a job are fetched from the broker once, checked by their
 * digests and kept in `sent/`, up to a size. Each task gets a copy. Returned files are sent to the broker before the
 * task's result.
 */
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { copyFile, open, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { badInput, LaboroError } from "../base/errors.js";
import { openBeneath } from "../base/files/beneath.js";
import type { JobId } from "../model/ids.js";
import { FILE_CHUNK } from "../model/outcome.js";
import { expandPaths, type TaskValues } from "../model/placeholders.js";
import {
  encodeHeader,
  FILE_WINDOW,
  filesOfTask,
  MAX_FILE_BYTES,
  MAX_FILES,
  returnedBy,
  type SentFile,
  type TaskFiles,
} from "../model/task-files.js";
import type { TaskRef } from "../protocols/laboro/messages.js";

/** The worker's questions to its broker; they are asked again after a reconnect. */
export interface FileParts {
  getFile(job: JobId, file: number, from: number): Promise<Uint8Array>;
  putFile(task: TaskRef, from: number, bytes: Uint8Array): Promise<void>;
}

/** Beyond this, files that were not used for the longest time are removed. */
const CACHE_BYTES = 10 * 1024 ** 3;

export class TaskFolders {
  readonly #cache: string;
  readonly #folders: string;
  readonly #cacheBytes: number;
  readonly #fetching = new Map<string, Promise<void>>();
  /** By digest: how many tasks are about to copy it. */
  readonly #pinned = new Map<string, number>();

  constructor(directory: string, cacheBytes = CACHE_BYTES) {
    this.#cache = join(directory, "sent");
    this.#folders = join(directory, "tasks");
    this.#cacheBytes = cacheBytes;
    // Folders of an earlier process.
    this.remove(this.#folders);
  }

  /** Makes the folder of a task, with its files. */
  async make(task: TaskRef, files: TaskFiles, values: TaskValues, parts: FileParts): Promise<string> {
    const folder = join(this.#folders, `${task.job}.${task.index}.${task.attempt}`);
    for (const dir of [this.#cache, folder]) fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
    try {
      const { sent = [], use } = files;
      for (const place of filesOfTask(sent, use && expandPaths(use, values, "--send"))) {
        const file = sent[place];
        if (file !== undefined) await this.#copy(file, folder, () => this.#fetch(task.job, place, file, parts));
      }
      return folder;
    } catch (cause) {
      this.remove(folder);
      throw cause;
    }
  }

  /** Never throws. A folder that cannot be removed stays; no other task uses it. */
  remove(folder: string): void {
    try {
      fs.rmSync(folder, { recursive: true, force: true, maxRetries: 2 });
    } catch {
      // The task has created folders that are too deep for Node, or not writable.
      spawnSync("/bin/sh", ["-c", 'chmod -R u+rwX "$1"; rm -rf "$1"', "sh", folder], { stdio: "ignore" });
    }
  }

  async #copy({ path, sha256, executable }: SentFile, folder: string, fetch: () => Promise<void>): Promise<void> {
    this.#pinned.set(sha256, (this.#pinned.get(sha256) ?? 0) + 1);
    try {
      await this.#fetchOnce(sha256, fetch);
      const target = join(folder, path);
      fs.mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
      await copyFile(join(this.#cache, sha256), target, fs.constants.COPYFILE_FICLONE | fs.constants.COPYFILE_EXCL);
      fs.chmodSync(target, executable === true ? 0o700 : 0o600);
    } finally {
      const users = (this.#pinned.get(sha256) ?? 1) - 1;
      if (users > 0) this.#pinned.set(sha256, users);
      else this.#pinned.delete(sha256);
    }
  }

  /** Tasks that start together wait for one transfer. */
  async #fetchOnce(sha256: string, fetch: () => Promise<void>): Promise<void> {
    let fetching = this.#fetching.get(sha256);
    if (fetching === undefined) {
      fetching = fetch().finally(() => this.#fetching.delete(sha256));
      this.#fetching.set(sha256, fetching);
    }
    await fetching;
  }

  async #fetch(job: JobId, place: number, { path, size, sha256 }: SentFile, parts: FileParts): Promise<void> {
    const cached = join(this.#cache, sha256);
    if (fs.statSync(cached, { throwIfNoEntry: false })?.size === size) {
      const now = new Date();
      fs.utimesSync(cached, now, now);
      return;
    }
    this.#makeRoom(size);
    const { createHash } = await import("node:crypto");
    const hash = createHash("sha256");
    const part = await open(`${cached}.part`, "w", 0o600);
    try {
      const ahead: Promise<Uint8Array>[] = [];
      for (let at = 0, asked = 0; at < size; at += FILE_CHUNK) {
        for (; asked < size && ahead.length < FILE_WINDOW; asked += FILE_CHUNK) {
          const asking = parts.getFile(job, place, asked);
          // Read below, unless an earlier one is refused.
          asking.catch(() => {});
          ahead.push(asking);
        }
        const bytes = (await ahead.shift()) ?? new Uint8Array(0);
        if (bytes.length !== Math.min(FILE_CHUNK, size - at))
          throw new LaboroError("LABORO_FILE_MISSING", `${path} was not sent completely: submit the job again`);
        await part.writeFile(bytes);
        hash.update(bytes);
      }
      if (hash.digest("hex") !== sha256)
        throw new LaboroError("LABORO_FILE_MISSING", `${path} is not what was submitted: submit the job again`);
      await part.sync();
      await rename(`${cached}.part`, cached);
    } finally {
      await part.close();
      fs.rmSync(`${cached}.part`, { force: true });
    }
  }

  #makeRoom(size: number): void {
    const names = fs.readdirSync(this.#cache).filter((name) => /^[0-9a-f]{64}$/.test(name));
    const files = names.map((name) => ({ name, stat: fs.statSync(join(this.#cache, name)) }));
    let bytes = size + files.reduce((sum, { stat }) => sum + stat.size, 0);
    for (const { name, stat } of files.sort((a, b) => a.stat.mtimeMs - b.stat.mtimeMs)) {
      if (bytes <= this.#cacheBytes) return;
      if (this.#pinned.has(name)) continue;
      fs.rmSync(join(this.#cache, name), { force: true });
      bytes -= stat.size;
    }
  }

  /** Sends the files that the task returns. After a success, paths without a wildcard must exist. Refuses links. */
  async returnFiles(
    task: TaskRef,
    folder: string,
    { returns = [] }: TaskFiles,
    { values, succeeded }: { readonly values: TaskValues; readonly succeeded: boolean },
    { parts, signal }: { readonly parts: FileParts; readonly signal: AbortSignal },
  ): Promise<void> {
    const patterns = expandPaths(returns, values, "--return");
    const found = filesIn(folder, returnedBy(patterns));
    for (const pattern of succeeded ? patterns : []) {
      if (/[*?]/.test(pattern) || found.some(({ path }) => returnedBy([pattern])(path))) continue;
      throw new LaboroError("LABORO_FILE_MISSING", `the task has not made ${pattern}, which it should return`);
    }
    if (found.length === 0) return;
    const { createHash } = await import("node:crypto");
    const sender = new PartSender((from, bytes) => parts.putFile(task, from, bytes));
    let total = 0;
    for (const { path, isFile } of found) {
      signal.throwIfAborted();
      if (!isFile) throw badInput(`${path} cannot be returned: it is a link or no regular file`);
      const fd = openBeneath(folder, path);
      try {
        const { size, mode } = fs.fstatSync(fd);
        if ((mode & fs.constants.S_IFMT) !== fs.constants.S_IFREG)
          throw badInput(`${path} cannot be returned: it is a link or no regular file`);
        total += size;
        if (total > MAX_FILE_BYTES) throw badInput(`the task returns more than ${MAX_FILE_BYTES} bytes`);
        await sender.add(encodeHeader({ path, size, executable: (mode & 0o100) !== 0 }));
        const hash = createHash("sha256");
        for (let at = 0; at < size; ) {
          signal.throwIfAborted();
          const buffer = Buffer.allocUnsafe(Math.min(FILE_CHUNK, size - at));
          const read = fs.readSync(fd, buffer, 0, buffer.length, at);
          if (read === 0) throw badInput(`${path} became shorter while it was returned`);
          hash.update(buffer.subarray(0, read));
          await sender.add(buffer.subarray(0, read));
          at += read;
        }
        await sender.add(hash.digest());
      } finally {
        fs.closeSync(fd);
      }
    }
    await sender.finish();
  }
}

/** The requested files of the folder, in order of path. Links and special files are marked, and not followed. */
function filesIn(
  folder: string,
  isWanted: (path: string) => boolean,
): { readonly path: string; readonly isFile: boolean }[] {
  const found: { path: string; isFile: boolean }[] = [];
  const walk = (below: string): void => {
    const entries = fs.readdirSync(join(folder, below), { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = below === "" ? entry.name : `${below}/${entry.name}`;
      if (entry.isDirectory()) walk(path);
      else if (isWanted(path)) found.push({ path, isFile: entry.isFile() });
      if (found.length > MAX_FILES) throw badInput(`the task returns more than ${MAX_FILES} files`);
    }
  };
  walk("");
  return found;
}

/** Collects bytes into parts. Sends them in order, a few at a time. */
class PartSender {
  readonly #put: (from: number, bytes: Uint8Array) => Promise<void>;
  #parts: Buffer[] = [];
  #size = 0;
  #from = 0;
  readonly #underWay: Promise<void>[] = [];

  constructor(put: (from: number, bytes: Uint8Array) => Promise<void>) {
    this.#put = put;
  }

  async add(bytes: Buffer): Promise<void> {
    this.#parts.push(bytes);
    this.#size += bytes.length;
    while (this.#size >= FILE_CHUNK) await this.#send(FILE_CHUNK);
  }

  async finish(): Promise<void> {
    if (this.#size > 0) await this.#send(this.#size);
    await Promise.all(this.#underWay);
  }

  async #send(length: number): Promise<void> {
    const bytes = Buffer.concat(this.#parts);
    const putting = this.#put(this.#from, bytes.subarray(0, length));
    putting.catch(() => {});
    this.#underWay.push(putting);
    this.#parts = [bytes.subarray(length)];
    this.#size -= length;
    this.#from += length;
    if (this.#underWay.length >= FILE_WINDOW) await this.#underWay.shift();
  }
}
