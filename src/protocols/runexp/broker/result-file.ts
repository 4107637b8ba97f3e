/** A `.res` file that is being written: it appears whole and on disk, or not at all. Where it cannot be written, its methods throw. */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { errnoOf } from "../../../base/errors.js";
import { writeFailure, writeFully } from "../../../base/files/durable.js";
import { bytesOf, displayName } from "../messages.js";

const sync = promisify(fs.fsync);

export interface ResFileOptions {
  /** Where the results are. A path of bytes. */
  readonly outputs: string;
  /** Where they are written before they get their names, on the same file system. A path of bytes. */
  readonly drafts: string;
}

export class ResFile {
  static #count = 0;
  readonly #outputs: string;
  readonly #path: string;
  readonly #draft: string;
  #fd: number | undefined;
  #written = 0;
  #newFolder = false;

  /** `name` is one of bytes. */
  constructor(name: string, { outputs, drafts }: ResFileOptions) {
    this.#outputs = outputs;
    this.#path = `${outputs}/${name}.res`;
    this.#draft = `${drafts}/${process.pid}-${++ResFile.#count}.res`;
  }

  write(bytes: Uint8Array): void {
    try {
      this.#fd ??= fs.openSync(bytesOf(this.#draft), "w", 0o666);
      writeFully(this.#fd, bytes, this.#written);
      this.#written += bytes.length;
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** Resolves when all of it is on disk, still out of sight. */
  async sync(): Promise<void> {
    this.write(Buffer.alloc(0));
    try {
      if (this.#fd !== undefined) await sync(this.#fd);
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** Gives it its name: from now on it is the result. */
  publish(): void {
    this.#close();
    const [from, to] = [bytesOf(this.#draft), bytesOf(this.#path)];
    try {
      try {
        fs.renameSync(from, to);
      } catch (cause) {
        if (errnoOf(cause) !== "ENOENT") throw cause;
        fs.mkdirSync(bytesOf(dirname(this.#path)), { recursive: true });
        this.#newFolder = true;
        fs.renameSync(from, to);
      }
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  /** Resolves when its name is on disk too, and those of new folders. */
  async syncName(): Promise<void> {
    const top = this.#newFolder ? this.#outputs : dirname(this.#path);
    try {
      for (let folder = dirname(this.#path); folder.length >= top.length; folder = dirname(folder)) {
        const directory = await fs.promises.open(bytesOf(folder), "r");
        await directory.sync().finally(() => directory.close());
        if (folder === dirname(folder)) return;
      }
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  abandon(): void {
    this.#close();
    fs.rmSync(bytesOf(this.#draft), { force: true });
  }

  #close(): void {
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    this.#fd = undefined;
  }

  #failure(cause: unknown): Error {
    return writeFailure(cause, `cannot write ${displayName(this.#path)}`);
  }
}
