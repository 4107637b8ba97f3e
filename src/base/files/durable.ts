/**
 * Writes that are whole or fail, and names that survive a power cut: a new file or a rename is durable only once its
 * directory is synced too.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { type ErrorCode, errnoOf, LaboroError, passesByItself } from "../errors.js";

const CODES: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: "LABORO_DISK_FULL",
  EDQUOT: "LABORO_DISK_FULL",
  EMFILE: "LABORO_NO_DESCRIPTORS",
  ENFILE: "LABORO_NO_DESCRIPTORS",
};

/** The code of a system error that can pass by itself. */
export const transientCode = (errno: string | undefined): ErrorCode | undefined =>
  errno === undefined ? undefined : CODES[errno];

/** The coded error for a failed write: what can pass by itself has codes of its own. */
export function writeFailure(cause: unknown, doing: string): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  return new LaboroError(transientCode(errnoOf(cause)) ?? "LABORO_STORE_FAILED", `${doing}: ${text}`, { cause });
}

/** Where a start fails because a disk is full: says which directory, and what to do. Any other cause is returned unchanged. */
export function startFailure(cause: unknown, what: string, dir: string): unknown {
  const failure = writeFailure(cause, "cannot write");
  if (failure.code !== "LABORO_DISK_FULL") return cause;
  const text = `the disk of ${dir} is full, so ${what} does not start: free some space there and start laboro again`;
  return new LaboroError(failure.code, `${text} (${failure.message})`, { cause });
}

/** Writes all of the bytes at the position; a short write goes on until the system says why it stopped. */
export function writeFully(fd: number, bytes: Uint8Array, position: number): void {
  let done = 0;
  while (done < bytes.length) {
    const written = fs.writeSync(fd, bytes, done, bytes.length - done, position + done);
    if (written === 0) throw new LaboroError("LABORO_STORE_FAILED", "the system wrote nothing and gave no reason");
    done += written;
  }
}

/** Reads until the target is full or the file ends; says how many bytes came. */
export function readFully(fd: number, target: Uint8Array, position: number): number {
  let done = 0;
  while (done < target.length) {
    const got = fs.readSync(fd, target, done, target.length - done, position + done);
    if (got === 0) break;
    done += got;
  }
  return done;
}

export function syncDirectory(path: fs.PathLike): void {
  const fd = fs.openSync(path, "r");
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

/**
 * As `mkdir -p`; returns the topmost directory that it made. Node's own recursive mkdir loops for ever where a folder reports ENOENT
 * although it exists, as /proc does.
 */
export function makeDirectory(path: string, mode: number): string | undefined {
  try {
    fs.mkdirSync(path, { mode });
    return path;
  } catch (cause) {
    const errno = errnoOf(cause);
    if (errno === "EEXIST" && fs.statSync(path, { throwIfNoEntry: false })?.isDirectory()) return undefined;
    if (errno !== "ENOENT" || fs.existsSync(dirname(path))) throw cause;
  }
  const topmost = makeDirectory(dirname(path), mode);
  fs.mkdirSync(path, { mode });
  return topmost ?? path;
}

/** Writes a file. After a crash it holds either its old content or all of these bytes. */
export function writeFileAtomically(path: string, bytes: Uint8Array | string, mode = 0o600): void {
  const draft = `${path}.${process.pid}.new`;
  try {
    // The mode is not used where the file is there already.
    fs.rmSync(draft, { force: true });
    const fd = fs.openSync(draft, "wx", mode);
    try {
      writeFully(fd, typeof bytes === "string" ? Buffer.from(bytes) : bytes, 0);
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
    fs.renameSync(draft, path);
    syncDirectory(dirname(path));
  } catch (cause) {
    fs.rmSync(draft, { force: true });
    const failure = writeFailure(cause, `cannot write ${path}`);
    if (passesByItself(failure.code)) throw failure;
    throw new LaboroError("LABORO_DATA_UNUSABLE", failure.message, { cause });
  }
}
