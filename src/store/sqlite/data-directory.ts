/**
 * The data directory: created if missing, private to its user, not on a network filesystem, and locked by this process.
 * Also the coded errors of SQLite and the file system.
 */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { type ErrorCode, errnoOf, LaboroError } from "../../base/errors.js";
import { transientCode } from "../../base/files/durable.js";
import { type FilesystemFacts, networkFilesystem } from "../../base/files/filesystem.js";
import { acquireLock } from "../../base/files/lock.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";

/** The primary result codes of SQLite that mean something to a person; https://sqlite.org/rescode.html */
const SQLITE_PERM = 3;
const SQLITE_READONLY = 8;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_CONSTRAINT = 19;
const SQLITE_NOTADB = 26;
/** The errno of the failed call, as the addon reports it. */
const ERRNO: Readonly<Record<number, string>> = { 23: "ENFILE", 24: "EMFILE", 28: "ENOSPC", 122: "EDQUOT" };

const UNUSABLE = new Set(["EACCES", "EPERM", "EROFS", "EISDIR", "ENOTDIR", "EEXIST", "ELOOP", "ENAMETOOLONG"]);

/** The coded error for a failure of SQLite or the file system. */
export function storeFailure(cause: unknown, path: string): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  const system = numberAt(cause, "systemErrno");
  const errno = errnoOf(cause);
  const transient = transientCode(errno) ?? (system === undefined ? undefined : transientCode(ERRNO[system]));
  if (transient !== undefined) return lacking(transient, path, text, cause);
  if (errno !== undefined && UNUSABLE.has(errno)) return unusable(path, text, cause);
  const code = numberAt(cause, "errcode");
  switch (code === undefined ? undefined : code & 0xff) {
    case SQLITE_FULL:
      return lacking("LABORO_DISK_FULL", path, text, cause);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return corrupt(path, text, cause);
    case SQLITE_CONSTRAINT:
      // For example two task ranges with one id: a retry would not help.
      return new LaboroError("LABORO_INTERNAL", `${path}: ${text}`, { cause });
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return unusable(path, text, cause);
    default:
      break;
  }
  return new LaboroError("LABORO_STORE_FAILED", `${path}: ${text}`, { cause });
}

export function corrupt(path: string, text: string, cause?: unknown): LaboroError {
  return new LaboroError(
    "LABORO_DATA_CORRUPT",
    `${path} is damaged (${text}); nothing in it was changed. Put back a copy of the data directory, or use another with --data`,
    { cause },
  );
}

function lacking(code: ErrorCode, path: string, text: string, cause: unknown): LaboroError {
  const what = code === "LABORO_DISK_FULL" ? "disk space" : "file descriptor";
  return new LaboroError(code, `no ${what} to write ${path}: ${text}`, { cause });
}

function unusable(path: string, text: string, cause: unknown): LaboroError {
  return new LaboroError("LABORO_DATA_UNUSABLE", `cannot read and write ${path}: ${text}`, { cause });
}

function numberAt(cause: unknown, key: "errcode" | "systemErrno"): number | undefined {
  if (typeof cause !== "object" || cause === null) return undefined;
  const value: unknown = Reflect.get(cause, key);
  return typeof value === "number" ? value : undefined;
}

export interface DataDirectory {
  release(): void;
}

interface DataDirectoryOptions {
  readonly dir: string;
  readonly allowNetworkFilesystem: boolean;
  /** Facts about the filesystem, for tests; read from the system if absent. */
  readonly facts?: FilesystemFacts;
}

export function openDataDirectory({ dir, allowNetworkFilesystem, facts }: DataDirectoryOptions): DataDirectory {
  try {
    if (!allowNetworkFilesystem) refuseNetwork(dir, facts);
    openPrivateDirectory(resolve(dir));
    fs.accessSync(dir, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK);
    return acquireLock(join(dir, "lock"), `the data directory ${dir}`);
  } catch (cause) {
    const failure = storeFailure(cause, dir);
    // Any other failure to create or lock the directory is a problem of the directory, not of the store.
    throw failure.code === "LABORO_STORE_FAILED" ? unusable(dir, failure.message, cause) : failure;
  }
}

function refuseNetwork(dir: string, facts: FilesystemFacts | undefined): void {
  const name = networkFilesystem(dir, facts);
  if (name === undefined) return;
  throw new LaboroError(
    "LABORO_DATA_NETWORK_FS",
    `the data directory ${dir} is on a network filesystem (${name}), where a database can be damaged: give one on a local disk with --data, such as a directory in /var/tmp`,
  );
}
