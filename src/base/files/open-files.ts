/**
 * A cache of open files by path. At its limit, it closes the least recently used file. Files are read and written at
 * explicit positions, so closing and reopening one changes nothing.
 */
import * as fs from "node:fs";
import { errnoOf } from "../errors.js";

export class OpenFiles {
  readonly #limit: number;
  /** In order of last use, the oldest first. */
  readonly #descriptors = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = Math.max(1, limit);
  }

  get count(): number {
    return this.#descriptors.size;
  }

  /** The descriptor of the file, valid until the next call. */
  use(path: string, create = false): number {
    const open = this.#descriptors.get(path);
    if (open !== undefined) {
      this.#descriptors.delete(path);
      this.#descriptors.set(path, open);
      return open;
    }
    for (const oldest of this.#descriptors.keys()) {
      if (this.#descriptors.size < this.#limit) break;
      this.close(oldest);
    }
    const flags = create ? fs.constants.O_RDWR | fs.constants.O_CREAT : fs.constants.O_RDWR;
    const fd = this.#open(path, flags);
    this.#descriptors.set(path, fd);
    return fd;
  }

  /** If the process has no descriptor left, closes files of this cache. */
  #open(path: string, flags: number): number {
    try {
      return fs.openSync(path, flags, 0o600);
    } catch (cause) {
      if (errnoOf(cause) !== "EMFILE" || this.#descriptors.size === 0) throw cause;
      this.closeAll();
      return fs.openSync(path, flags, 0o600);
    }
  }

  close(path: string): void {
    const fd = this.#descriptors.get(path);
    if (fd === undefined) return;
    this.#descriptors.delete(path);
    fs.closeSync(fd);
  }

  closeAll(): void {
    for (const path of [...this.#descriptors.keys()]) this.close(path);
  }
}
