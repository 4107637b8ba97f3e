import { errnoOf, LaboroError } from "../../base/errors.js";

/** The primary result codes of SQLite that mean something to a person; https://sqlite.org/rescode.html */
const SQLITE_PERM = 3;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_CONSTRAINT = 19;
const SQLITE_NOTADB = 26;
/** As the addon passes on the errno of the failed call. */
const ENOSPC = 28;
const EDQUOT = 122;

const UNUSABLE = new Set(["EACCES", "EPERM", "EROFS", "EISDIR", "ENOTDIR", "EEXIST", "ELOOP", "ENAMETOOLONG"]);

/** The coded error for whatever SQLite or the file system threw. */
export function storeFailure(cause: unknown, path: string): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  const errno = errnoOf(cause);
  if (errno === "ENOSPC" || errno === "EDQUOT") return full(path, text, cause);
  if (errno !== undefined && UNUSABLE.has(errno)) return unusable(path, text, cause);
  const code = numberAt(cause, "errcode");
  switch (code === undefined ? undefined : code & 0xff) {
    case SQLITE_FULL:
      return full(path, text, cause);
    case SQLITE_IOERR: {
      const system = numberAt(cause, "systemErrno");
      if (system === ENOSPC || system === EDQUOT) return full(path, text, cause);
      break;
    }
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

function full(path: string, text: string, cause: unknown): LaboroError {
  return new LaboroError("LABORO_DISK_FULL", `no disk space to write ${path}: ${text}`, { cause });
}

export function unusable(path: string, text: string, cause: unknown): LaboroError {
  return new LaboroError("LABORO_DATA_UNUSABLE", `cannot read and write ${path}: ${text}`, { cause });
}

function numberAt(cause: unknown, key: "errcode" | "systemErrno"): number | undefined {
  if (typeof cause !== "object" || cause === null) return undefined;
  const value: unknown = Reflect.get(cause, key);
  return typeof value === "number" ? value : undefined;
}
