/** Complete and durable writes. A new file or a rename is durable only after its directory is synced, too. */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { type ErrorCode, errnoOf, LaboroError, passesByItself } from "../errors.js";

const CODES: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: "LABORO_DISK_FULL",
  EDQUOT: "LABORO_DISK_FULL",
  EMFILE: "LABORO_NO_DESCRIPTORS",
  ENFILE: "LABORO_NO_DESCRIPTORS",
};

/** The code of a temporary system error. */
export const transientCode = (errno: string | undefined): ErrorCode | undefined =>
  errno === undefined ? undefined : CODES[errno];

/** The coded error of a failed write. Temporary errors have their own codes. */
export function writeFailure(cause: unknown, doing: string): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  return new LaboroError(transientCode(errnoOf(cause)) ?? "LABORO_STORE_FAILED", `${doing}: ${text}`, { cause });
}

/** The coded error for a file or directory of laboro's own that cannot be used. */
export function unusable(cause: unknown, doing: string): LaboroError {
  const failure = writeFailure(cause, doing);
  if (cause instanceof LaboroError || passesByItself(failure.code)) return failure;
  return new LaboroError("LABORO_DATA_UNUSABLE", failure.message, { cause });
}

/** If a start failed because of a full disk, the error names the directory and what to do. Others stay unchanged. */
export function startFailure(cause: unknown, what: string, dir: string): unknown {
  const failure = writeFailure(cause, "cannot write");
  if (failure.code !== "LABORO_DISK_FULL") return cause;
  const text = `the disk of ${dir} is full, so ${what} does not start: free some space there and start laboro again`;
  return new LaboroError(failure.code, `${text} (${failure.message})`, { cause });
}

/** Writes all bytes at the position. A short write is continued until it is complete or fails. */
export function writeFully(fd: number, bytes: Uint8Array, position: number): void {
  let done = 0;
  while (done < bytes.length) {
    const written = fs.writeSync(fd, bytes, done, bytes.length - done, position + done);
    if (written === 0) throw new LaboroError("LABORO_STORE_FAILED", "the system wrote nothing and gave no reason");
    done += written;
  }
}

/** Reads until the target is full or the file ends. Returns the number of bytes read. */
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
 * Like `mkdir -p`. Returns the topmost directory that it created. Node's recursive mkdir loops forever if a directory
 * reports ENOENT although it exists, as /proc does.
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

/** Writes a file. After a crash it has either its old content or all of these bytes. */
export function writeFileAtomically(path: string, bytes: Uint8Array | string, mode = 0o600): void {
  const draft = `${path}.${process.pid}.new`;
  try {
    // The mode has no effect on an existing file.
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
    throw unusable(cause, `cannot write ${path}`);
  }
}
