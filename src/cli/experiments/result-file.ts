/**
 * A `.res` file on its way: whole and on disk, or not there at all. What is short is written in one go, at the end; only the wait for the
 * disk is left to others, because a result is waited for by a runner's whole connection.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { writeFailure, writeFully } from "../../files/durable.js";
import { errnoOf } from "../../model/errors.js";
import type { ResultFile } from "../../protocols/runexp/experiments.js";
import { bytesOf, shown } from "./folder.js";

const IN_MEMORY = 256 * 1024;
const sync = promisify(fs.fsync);

export class ResFile implements ResultFile {
  readonly #path: string;
  readonly #draft: string;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #written = 0;
  #fd: number | undefined;

  /** Paths of bytes; both on one file system. */
  constructor(path: string, draft: string) {
    this.#path = path;
    this.#draft = draft;
  }

  write(bytes: Buffer): void {
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes > IN_MEMORY) this.#flush();
  }

  async sync(): Promise<void> {
    this.#flush();
    const fd = this.#fd;
    if (fd === undefined) return;
    try {
      await sync(fd);
    } catch (cause) {
      throw writeFailure(cause, `cannot write ${shown(this.#path)}`);
    }
  }

  /** On disk, and there. */
  async finish(): Promise<void> {
    await this.sync();
    this.publish();
  }

  publish(): void {
    this.#close();
    const [from, to] = [bytesOf(this.#draft), bytesOf(this.#path)];
    try {
      fs.renameSync(from, to);
    } catch (cause) {
      if (errnoOf(cause) !== "ENOENT") throw writeFailure(cause, `cannot write ${shown(this.#path)}`);
      fs.mkdirSync(bytesOf(dirname(this.#path)), { recursive: true });
      fs.renameSync(from, to);
    }
  }

  abandon(): void {
    this.#waiting = [];
    this.#close();
    fs.rmSync(bytesOf(this.#draft), { force: true });
  }

  #close(): void {
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    this.#fd = undefined;
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#waiting.splice(0));
    this.#waitingBytes = 0;
    try {
      this.#fd ??= fs.openSync(bytesOf(this.#draft), "w", 0o666);
      writeFully(this.#fd, bytes, this.#written);
      this.#written += bytes.length;
    } catch (cause) {
      throw writeFailure(cause, `cannot write ${shown(this.#path)}`);
    }
  }
}
