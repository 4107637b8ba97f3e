/**
 * Extends SQLite's log before the space is needed. A commit that makes the log longer has to store the new length too, which doubles
 * the time of its fsync; a commit that overwrites existing bytes does not. So when the thread is idle, the log is extended piece by
 * piece to the size that it reaches between two checkpoints. SQLite ignores what follows its last frame: the checksums do not match.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { errnoOf } from "../../base/errors.js";
import { writeFully } from "../../base/files/durable.js";

/** 4,096 pages with their frame headers, and a little more. */
const TARGET_BYTES = 17 * 1024 * 1024;
const PIECE = 1024 * 1024;
/** On a disk with less free space than this the log is not extended. */
const MIN_FREE_DISK = 1024 * 1024 * 1024;

/** Extends the log by one piece; false once it is long enough. Called in the thread that writes the log, so the two never overlap. */
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
