/**
 * Checks a database before it is opened for writing. SQLite merges the log into the file when it closes, and treats an empty file as a
 * new one; a file that is damaged, or newer than this program, must not be changed.
 */
import * as fs from "node:fs";
import { DatabaseSync } from "@photostructure/sqlite";
import { corrupt, storeFailure } from "./failures.js";
import { refuseNewer } from "./migrations/index.js";

/** A full check reads every page; above this size it would hold up the opening for seconds. */
const MAX_FULL_CHECK_BYTES = 64 * 1024 * 1024;
const MAGIC = Buffer.from("SQLite format 3\0", "latin1");
const HEADER = 100;

export function inspectDatabase(path: string): void {
  try {
    const size = sizeOfFile(path);
    const log = sizeOfFile(`${path}-wal`);
    if (size === 0 && log === 0) return;
    if (size === 0) throw corrupt(path, `it is missing or empty, but its log ${path}-wal is there`);
    inspectHeader(path, size, log);
    inspectContent(path, size);
  } catch (cause) {
    throw storeFailure(cause, path);
  }
}

/** https://sqlite.org/fileformat.html#the_database_header */
function inspectHeader(path: string, size: number, log: number): void {
  const header = readHeader(path);
  if (header.length < HEADER || !header.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw corrupt(path, "it is not a database");
  }
  // While a log waits to be merged, the header may rightly be ahead of the file.
  if (log > 0) return;
  const pageSize = header.readUInt16BE(16);
  const stated = header.readUInt32BE(28) * (pageSize === 1 ? 65536 : pageSize);
  if (stated > size) throw corrupt(path, `it is cut off: ${size} bytes of ${stated}`);
}

function inspectContent(path: string, size: number): void {
  const db = new DatabaseSync(path, { readOnly: true });
  try {
    // The value is read by a function and not by a prepared statement, which would keep the file locked until it is collected.
    let value: unknown;
    db.function("report", (reported: unknown) => {
      value = reported;
      return null;
    });
    db.exec("SELECT report(user_version) FROM pragma_user_version");
    refuseNewer(Number(value), path);
    if (size > MAX_FULL_CHECK_BYTES) return;
    db.exec("SELECT report(quick_check) FROM pragma_quick_check LIMIT 1");
    if (value !== "ok") throw corrupt(path, String(value));
  } finally {
    db.close();
    // Reading beside a log needs this file; the lock on the directory says that no one else does.
    fs.rmSync(`${path}-shm`, { force: true });
  }
}

const sizeOfFile = (path: string): number => fs.statSync(path, { throwIfNoEntry: false })?.size ?? 0;

function readHeader(path: string): Buffer {
  const fd = fs.openSync(path, "r");
  try {
    const header = Buffer.alloc(HEADER);
    return header.subarray(0, fs.readSync(fd, header, 0, HEADER, 0));
  } finally {
    fs.closeSync(fd);
  }
}
