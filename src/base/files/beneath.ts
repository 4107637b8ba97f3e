/**
 * Opens files below a directory without following symbolic links: each part is opened in the directory opened before
 * it, so that a name that is changed meanwhile leads nowhere else. Throws the system's error: ELOOP or ENOTDIR for a
 * link.
 */
import * as fs from "node:fs";

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;

/** The directory of the path, opened. With `make`, directories that are missing are made. */
function openParent(root: string, names: readonly string[], make: boolean): number {
  let dir = fs.openSync(root, O_RDONLY | O_DIRECTORY);
  try {
    for (const name of names) {
      const path = within(dir, name);
      if (make) makeIfMissing(path);
      const next = fs.openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      fs.closeSync(dir);
      dir = next;
    }
    return dir;
  } catch (cause) {
    fs.closeSync(dir);
    throw cause;
  }
}

/** Linux resolves this in the directory itself, wherever its name leads by now. */
const within = (dir: number, name: string): string => `/proc/self/fd/${dir}/${name}`;

function makeIfMissing(path: string): void {
  try {
    fs.mkdirSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EEXIST") throw cause;
  }
}

/** `path` is relative, without `.` and `..`. Not blocked by a named pipe. */
export function openBeneath(root: string, path: string): number {
  const names = path.split("/");
  const dir = openParent(root, names.slice(0, -1), false);
  try {
    return fs.openSync(within(dir, names.at(-1) ?? ""), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } finally {
    fs.closeSync(dir);
  }
}

/** A file that gets its name when it is complete; until then nothing is changed under that name. */
export class FileBeneath {
  readonly #dir: number;
  readonly #fd: number;
  readonly #temporary: string;
  readonly #name: string;

  constructor(root: string, path: string, mode: number) {
    const names = path.split("/");
    this.#name = names.at(-1) ?? "";
    this.#temporary = `.laboro-${process.pid}-${Math.random().toString(36).slice(2)}`;
    this.#dir = openParent(root, names.slice(0, -1), true);
    try {
      this.#fd = fs.openSync(within(this.#dir, this.#temporary), "wx", mode);
    } catch (cause) {
      fs.closeSync(this.#dir);
      throw cause;
    }
  }

  write(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) at += fs.writeSync(this.#fd, bytes, at);
  }

  /** Replaces a file of this name. A link of this name is replaced, not followed. */
  keep(): void {
    fs.renameSync(within(this.#dir, this.#temporary), within(this.#dir, this.#name));
    this.#close();
  }

  discard(): void {
    fs.rmSync(within(this.#dir, this.#temporary), { force: true });
    this.#close();
  }

  #close(): void {
    fs.closeSync(this.#fd);
    fs.closeSync(this.#dir);
  }
}
