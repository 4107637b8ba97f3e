/**
 * Room for SQLite's log, made before it is needed. A commit that makes the log longer has the file system write down the new
 * length, too, which doubles the time of its fsync; one that writes over what is there does not. So when the thread has
 * nothing else to do, the log is lengthened, a piece at a time, to what it grows to between two checkpoints. SQLite takes what
 * stands behind its last frame for nothing: the checksums do not fit.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { errnoOf } from "../../base/errors.js";
import { writeFully } from "../../base/files/durable.js";

/** 4,096 pages with their frame headers, and a little more. */
const TARGET_BYTES = 17 * 1024 * 1024;
const PIECE = 1024 * 1024;
/** On a disk with less room than this the log grows as it must. */
const MIN_FREE_DISK = 1024 * 1024 * 1024;

/** Makes one piece; false once there is nothing left to do. Called in the thread that writes the log, so the two never meet. */
export function extendWal(path: string): boolean {
  const log = `${path}-wal`;
  let fd: number;
  try {
    fd = fs.openSync(log, "r+");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return false;
    throw cause;
  }
  try {
    const { size } = fs.fstatSync(fd);
    if (size >= TARGET_BYTES || !hasFreeDisk(dirname(path))) return false;
    writeFully(fd, Buffer.alloc(Math.min(PIECE, TARGET_BYTES - size)), size);
    fs.fdatasyncSync(fd);
    return true;
  } finally {
    fs.closeSync(fd);
  }
}

function hasFreeDisk(dir: string): boolean {
  const { bavail, bsize } = fs.statfsSync(dir);
  return bavail * bsize > MIN_FREE_DISK;
}
