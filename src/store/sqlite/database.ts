/** Opens the database file for writing, after an inspection. */
import * as fs from "node:fs";
import { DatabaseSync, type DatabaseSyncInstance, type StatementSyncInstance } from "@photostructure/sqlite";
import { corrupt, storeFailure } from "./data-directory.js";
import { migrate, refuseNewer } from "./migrations.js";

export type Database = DatabaseSyncInstance;
export type Statement = StatementSyncInstance;

// Exclusive locking comes first: then the index of the log is in memory and no shared-memory file is needed. The log
// may grow to 16 MiB between checkpoints, each of which costs two more fsyncs.
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
 * Creates the database file, because SQLite would use the mode of the umask. Its log gets the same mode. Returns
 * whether it is new. A new one is synced once, before there is a log: SQLite would sync four times, for an empty
 * journal. Closing the file later would release SQLite's lock on it.
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

// Checks a database before it is opened for writing. SQLite merges the log into the file when it closes, and treats an
// empty file as a new one. A file that is damaged, or newer than this program, must not be changed.

/** A full check reads every page; above this size it would hold up the opening for seconds. */
const MAX_FULL_CHECK_BYTES = 64 * 1024 * 1024;
const MAGIC = Buffer.from("SQLite format 3\0", "latin1");
const HEADER = 100;

/** What the database has, as SQLite reads it. */
export interface StoredCounts {
  readonly commits: number;
  /** The highest number that was given to a job. */
  readonly job: number;
}

export function inspectDatabase(path: string): StoredCounts {
  try {
    const size = sizeOfFile(path);
    const log = sizeOfFile(`${path}-wal`);
    if (size === 0 && log === 0) return { commits: 0, job: 0 };
    if (size === 0) throw corrupt(path, `it is missing or empty, but its log ${path}-wal is there`);
    inspectHeader(path, size, log);
    return inspectContent(path, size);
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

function inspectContent(path: string, size: number): StoredCounts {
  return readOnly(path, (read) => {
    const [version] = read("user_version", "pragma_user_version");
    refuseNewer(Number(version), path);
    const [check] = size > MAX_FULL_CHECK_BYTES ? ["ok"] : read("quick_check", "pragma_quick_check LIMIT 1");
    if (check !== "ok") throw corrupt(path, String(check));
    // A database whose first commit was not completed has no tables.
    if (version === 0) return { commits: 0, job: 0 };
    const [commits] = read("commits", "broker");
    const [job] = read("seq", "sqlite_sequence WHERE name = 'job'");
    return { commits: Number(commits ?? 0), job: Number(job ?? 0) };
  });
}

/** Jobs whose counters differ from their results, or whose number was never given: the content of a page is wrong. */
export function findMiscounted(path: string): number[] {
  const counted = (state: number): string =>
    `(SELECT count(*) FROM result WHERE result.job = job.id AND result.state = ${state})`;
  const last = "(SELECT seq FROM sqlite_sequence WHERE name = 'job')";
  const wrong = `succeeded <> ${counted(0)} OR failed <> ${counted(1)} OR id > ${last}`;
  return readOnly(path, (read) => read("id", `job WHERE ${wrong} ORDER BY id`).map(Number));
}

type ReadColumn = (column: string, from: string) => unknown[];

function readOnly<T>(path: string, work: (read: ReadColumn) => T): T {
  const db = new DatabaseSync(path, { readOnly: true });
  try {
    // Values are read by a function, not by a prepared statement, which would keep the file locked until it is
    // collected.
    let values: unknown[] = [];
    db.function("report", (value: unknown) => {
      values.push(value);
      return null;
    });
    return work((column, from) => {
      values = [];
      db.exec(`SELECT report(${column}) FROM ${from}`);
      return values;
    });
  } finally {
    db.close();
    // Reading created this file. The lock on the directory shows that nobody else needs it.
    fs.rmSync(`${path}-shm`, { force: true });
    if (sizeOfFile(`${path}-wal`) === 0) fs.rmSync(`${path}-wal`, { force: true });
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
