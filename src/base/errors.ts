/** All error codes. A code is stable and never reused. A test compares docs/reference/errors.md with this table. */
export const ERROR_CODES = {
  LABORO_ALLOCATOR_EXISTS: "an allocator with this name exists already",
  LABORO_BAD_CERTIFICATE: "the certificate at this address does not belong to the named broker",
  LABORO_BAD_INPUT: "a value does not have the expected form",
  LABORO_BAD_MESSAGE: "a peer sent bytes that are not a message of this protocol",
  LABORO_BAD_REPLY: "the handler of a service returned a value that cannot be sent or read",
  LABORO_BAD_TOKEN: "the token is missing or unknown to this broker",
  LABORO_BODY_TOO_LARGE: "a request body or reply is larger than the limit",
  LABORO_BROKER_GONE: "the connection to the broker ended before the answer came",
  LABORO_BROKER_STOPPING: "the broker is stopping and takes nothing new",
  LABORO_BROKER_UNREACHABLE: "no broker answers at this address",
  LABORO_DATA_CORRUPT: "a file in the data directory fails its integrity check",
  LABORO_DATA_IN_USE: "another process uses the data directory",
  LABORO_DATA_LOST: "acknowledged data is missing, because a file in the data directory was damaged",
  LABORO_DATA_NEWER: "the data directory was written by a newer laboro",
  LABORO_DATA_NETWORK_FS: "the data directory is on a network filesystem",
  LABORO_DATA_UNUSABLE: "the data directory cannot be read or written, or other users have access to it",
  LABORO_DEADLINE: "no answer came before the deadline",
  LABORO_DISK_FULL: "the disk is full: nothing new is accepted until disk space is free",
  LABORO_FILE_MISSING: "a file that a task needs or returns is missing, or differs from the submitted one",
  LABORO_FORBIDDEN: "the token's role does not allow this",
  LABORO_INTERNAL: "a fault in laboro itself",
  LABORO_JOB_CLOSED: "the job takes no more tasks",
  LABORO_JOB_ENDED: "the job has ended already",
  LABORO_JOB_OPEN: "the job has not ended yet",
  LABORO_KEY_IN_USE: "another job has the key, and the submission asked to be refused in this case",
  LABORO_LEASE_LOST: "the other brokers of the group marked this one dead; it must open the store again",
  LABORO_NO_DESCRIPTORS: "no file descriptor is left: nothing new is accepted until some are free",
  LABORO_NO_SUCH_ALLOCATOR: "no allocator has this name",
  LABORO_NO_SUCH_JOB: "no job has this id",
  LABORO_NO_SUCH_LIMIT: "no limit has this name",
  LABORO_NO_SUCH_SCHEDULE: "no schedule has this name",
  LABORO_NO_SUCH_TASK: "the job has no task with this number, or in the API with this index",
  LABORO_NO_SUCH_WORKER: "no worker of this id or name is known here",
  LABORO_NOT_SUPPORTED: "the protocol of this worker does not support it",
  LABORO_QUEUE_FULL: "too many requests, or too many bytes of them, wait for an answer",
  LABORO_SCHEDULE_EXISTS: "a schedule with this name exists already",
  LABORO_SERVICE_FAILED: "the service answered with an error",
  LABORO_SSH_FAILED: "a machine cannot be used over ssh",
  LABORO_STORE_FAILED: "the store could not complete a write",
  LABORO_STORE_UNAVAILABLE: "the database that the brokers share does not answer",
  LABORO_TASK_CANCELLED: "the task was cancelled before it had a result",
  LABORO_TASK_FAILED: "the task has failed; the cause of the error is what its handler threw",
  LABORO_TOO_MANY_PEERS: "too many peers are connected to this listener",
  LABORO_VERSION: "the two ends speak different versions of the link",
  LABORO_WORKER_LOST: "the worker that had the request is gone",
  LABORO_WORKER_STOPPING: "the worker stops, and the grace period of its tasks is over",
} as const;

/** Stable, and explained in docs/reference/errors.md. */
export type ErrorCode = keyof typeof ERROR_CODES;

/** Every refusal and failure. `code` says which, the message why. */
export class LaboroError extends Error {
  /** Which refusal or failure: docs/reference/errors.md lists them. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "LaboroError";
    this.code = code;
  }
}

/** A temporary lack of a resource: the same write can succeed later. */
export const passesByItself = (code: ErrorCode): boolean =>
  code === "LABORO_DISK_FULL" || code === "LABORO_NO_DESCRIPTORS";

/** A value that a caller gave does not have the expected form. */
export function badInput(message: string, cause?: unknown): LaboroError {
  return new LaboroError("LABORO_BAD_INPUT", message, cause === undefined ? undefined : { cause });
}

/** A peer sent bytes that are not a message of its protocol. */
export function badMessage(message: string, cause?: unknown): LaboroError {
  return new LaboroError("LABORO_BAD_MESSAGE", message, cause === undefined ? undefined : { cause });
}

/** Any thrown value as a coded error. An error without a code is a bug in laboro. */
export function asLaboroError(cause: unknown): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  return new LaboroError("LABORO_INTERNAL", text, { cause });
}

/** The errno name of a system error ("ENOSPC"), if it is one. */
export function errnoOf(cause: unknown): string | undefined {
  if (typeof cause !== "object" || cause === null || !("code" in cause)) return undefined;
  return typeof cause.code === "string" ? cause.code : undefined;
}

const UNREADABLE: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file",
  ENOTDIR: "a part of the path is not a directory",
  EISDIR: "it is a directory",
  EACCES: "permission denied",
};

/** Why a file could not be read. */
export function whyUnreadable(cause: unknown): string {
  const errno = errnoOf(cause);
  return UNREADABLE[errno ?? ""] ?? errno ?? String(cause);
}
