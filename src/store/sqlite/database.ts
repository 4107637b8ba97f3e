/** Opening the one file of the database: what it must be, and how it is written. */
import * as fs from "node:fs";
import { DatabaseSync, type DatabaseSyncInstance, type StatementSyncInstance } from "@photostructure/sqlite";
import { corrupt, storeFailure } from "./failures.js";
import { migrate } from "./migrations/index.js";

export type Database = DatabaseSyncInstance;
export type Statement = StatementSyncInstance;

/** A full check reads every page; above this size it would hold up the opening for seconds. */
const CHECKED_WHOLE = 64 * 1024 * 1024;
const MAGIC = Buffer.from("SQLite format 3\0", "latin1");

// Exclusive locking comes first: then the index of the log lives in memory and no shared-memory file is needed.
// The log may grow to 16 MiB between checkpoints, each of which costs two more fsyncs.
const SETTINGS = `
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 4096;
PRAGMA journal_size_limit = 67108864;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
`;

export function openDatabase(path: string): Database {
  inspectFile(path);
  let db: Database | undefined;
  try {
    db = new DatabaseSync(path);
    db.exec(SETTINGS);
    if (fs.statSync(path).size < CHECKED_WHOLE) checkWhole(db, path);
    migrate(db, path);
    return db;
  } catch (cause) {
    db?.close();
    throw storeFailure(cause, path);
  }
}

/** What SQLite would overwrite or take for empty is refused before it sees the file. */
function inspectFile(path: string): void {
  const size = sizeOfFile(path);
  const log = sizeOfFile(`${path}-wal`);
  if (size === 0) {
    if (log > 0) throw corrupt(path, `it is missing or empty, but its log ${path}-wal is there`);
    return;
  }
  const header = readHeader(path);
  if (header.length < 100 || !header.subarray(0, 16).equals(MAGIC)) throw corrupt(path, "it is not a database");
  // While a log waits to be merged, the header may rightly be ahead of the file.
  if (log > 0) return;
  const pageSize = header.readUInt16BE(16);
  const stated = header.readUInt32BE(28) * (pageSize === 1 ? 65536 : pageSize);
  if (stated > size) throw corrupt(path, `it is cut off: ${size} bytes of ${stated}`);
}

function checkWhole(db: Database, path: string): void {
  const row: { quick_check: string } | undefined = db.prepare("PRAGMA quick_check(1)").get();
  if (row?.quick_check !== "ok") throw corrupt(path, row?.quick_check ?? "the check gave no answer");
}

function sizeOfFile(path: string): number {
  try {
    return fs.statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  } catch (cause) {
    throw storeFailure(cause, path);
  }
}

function readHeader(path: string): Buffer {
  try {
    const fd = fs.openSync(path, "r");
    try {
      const header = Buffer.alloc(100);
      return header.subarray(0, fs.readSync(fd, header, 0, 100, 0));
    } finally {
      fs.closeSync(fd);
    }
  } catch (cause) {
    throw storeFailure(cause, path);
  }
}
