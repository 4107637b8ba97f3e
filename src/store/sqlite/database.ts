/** Opening the one file of the database for writing. It has been inspected. */
import * as fs from "node:fs";
import { DatabaseSync, type DatabaseSyncInstance, type StatementSyncInstance } from "@photostructure/sqlite";
import { storeFailure } from "./failures.js";
import { migrate } from "./migrations/index.js";

export type Database = DatabaseSyncInstance;
export type Statement = StatementSyncInstance;

// Exclusive locking comes first: then the index of the log is in memory and no shared-memory file is needed.
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
  let db: Database | undefined;
  try {
    const isNew = createPrivateFile(path);
    db = new DatabaseSync(path);
    db.exec(SETTINGS);
    // The first commit syncs the log, with the tables that are made here.
    if (isNew) db.exec("PRAGMA synchronous = OFF");
    migrate(db);
    if (isNew) db.exec("PRAGMA synchronous = FULL");
    return db;
  } catch (cause) {
    db?.close();
    throw storeFailure(cause, path);
  }
}

/**
 * SQLite would create the database with the mode of the umask. Its log gets the mode of the database. Returns whether it is new. A new
 * one is synced once, before there is a log: SQLite would sync four times, for a journal of nothing. Closing the file later would drop
 * SQLite's lock on it.
 */
function createPrivateFile(path: string): boolean {
  const fd = fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600);
  try {
    fs.fchmodSync(fd, 0o600);
    if (fs.fstatSync(fd).size > 0) return false;
    const db = new DatabaseSync(path);
    db.exec("PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL");
    db.close();
    fs.fsyncSync(fd);
    return true;
  } finally {
    fs.closeSync(fd);
  }
}
