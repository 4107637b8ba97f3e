/**
 * What went wrong between a broker and its PostgreSQL, as coded errors. The codes of the server are those of
 * https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
import { errnoOf, LaboroError } from "../../base/errors.js";

/** Temporary: nothing was changed, and a retry may succeed. */
const TRANSIENT_CLASSES = new Set([
  "08", // connection
  "40", // deadlock, serialization: another transaction was in the way
  "53", // too many connections, out of memory
  "55", // a lock was not to be had in time
  "57", // shut down, starting up, cancelled by a time-out
  "58", // the server's own disk or files
]);
const TRANSIENT = new Set([
  "25P01", // no transaction: the connection broke, and the commit went to a new one
  "42704", // no such setting: likewise, for any other statement of a batch
  "25P02", // another statement of the transaction has failed
  "25P03", // idle in transaction for too long
  "25006", // a standby, or one that was a primary: it takes no writes
]);
/** Of the client or the network. */
const CONNECTION_ERRORS = new Set(
  `CONNECTION_CLOSED CONNECTION_ENDED CONNECTION_DESTROYED CONNECT_TIMEOUT ECONNREFUSED ECONNRESET EPIPE ETIMEDOUT
   EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN ENOTFOUND EAI_AGAIN ENOENT`.split(/\s+/),
);
const REFUSED = new Set(["28000", "28P01", "3D000", "42501", "3F000"]);
const DISK_FULL = "53100";
const CORRUPT = new Set(["XX001", "XX002"]);
const UNIQUE = "23505";
const SERVER_SHUTDOWN = new Set(["57P01", "57P02", "57P03", "57P05", "25P03"]);

/** `opening`: nothing was written yet, so a refusal by the server is LABORO_DATA_UNUSABLE, which a person has to fix. */
export function storeFailure(cause: unknown, displayUrl: string, opening = false): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const code = errnoOf(cause) ?? "";
  const text = `${displayUrl}: ${textOf(cause)}`;
  if (code === DISK_FULL) return new LaboroError("LABORO_DISK_FULL", `no disk space to write at ${text}`, { cause });
  if (REFUSED.has(code) && opening) return new LaboroError("LABORO_DATA_UNUSABLE", `cannot use ${text}`, { cause });
  if (CORRUPT.has(code)) return new LaboroError("LABORO_DATA_CORRUPT", text, { cause });
  if (REFUSED.has(code) || isTransient(code) || isOutsideTransaction(cause))
    return new LaboroError("LABORO_STORE_UNAVAILABLE", text, { cause });
  // Two task ranges with one id, a number out of range: a retry would not help.
  if (/^2[23]/.test(code)) return new LaboroError("LABORO_INTERNAL", text, { cause });
  return new LaboroError("LABORO_STORE_FAILED", text, { cause });
}

/** A statement of a batch outside its transaction, on a connection that had one before: the setting is there, and empty. */
const isOutsideTransaction = (cause: unknown): boolean =>
  errnoOf(cause) === "22P02" && textOf(cause).includes('bigint: ""');

const isTransient = (code: string): boolean =>
  CONNECTION_ERRORS.has(code) || TRANSIENT.has(code) || (code.length === 5 && TRANSIENT_CLASSES.has(code.slice(0, 2)));

/** Whether a COMMIT may have been carried out although it failed. */
export function isUnconfirmed(cause: unknown): boolean {
  const code = errnoOf(cause) ?? "";
  return CONNECTION_ERRORS.has(code) || code.startsWith("08") || SERVER_SHUTDOWN.has(code) || code === "";
}

/** Ended by its time-out, which may have been too short. */
export const isTimeout = (cause: unknown): boolean => errnoOf(cause) === "57014";

/** The batch has been committed before. */
export const isAlreadyCommitted = (cause: unknown): boolean =>
  errnoOf(cause) === UNIQUE && fieldOf(cause, "constraint_name") === "last_batch_pkey";

/** Some refusals of connections come as a list, one an address. */
function textOf(cause: unknown): string {
  if (cause instanceof AggregateError && cause.message === "") return cause.errors.map(textOf).join(", ");
  return cause instanceof Error ? cause.message : String(cause);
}

function fieldOf(cause: unknown, name: string): unknown {
  return typeof cause === "object" && cause !== null ? Reflect.get(cause, name) : undefined;
}
