/** What a handler threw, as it is stored and sent: name, message, stack, code, cause. */
import { LaboroError } from "../base/errors.js";
import type { RetryAfterMs } from "./outcome.js";

export interface ErrorDetails {
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  readonly code?: string | number;
  readonly cause?: ErrorDetails;
  readonly retryAfterMs?: RetryAfterMs;
}

/** Thrown by a handler: the task fails, even if retries are left. */
export class NoRetry extends Error {
  /** As of every error. */
  override readonly name = "NoRetry";
  /** By this the worker knows that the task is not tried again, also from another copy of this class. */
  readonly retryAfterMs = "never";
}

/** Thrown by a handler: the next attempt, if a retry is left, starts after this time. */
export class RetryAfter extends Error {
  /** As of every error. */
  override readonly name = "RetryAfter";
  /** When the next attempt may start, in milliseconds from now. */
  readonly retryAfterMs: number;

  constructor(ms: number, message = `to be tried again after ${ms} ms`, options?: ErrorOptions) {
    super(message, options);
    if (!Number.isFinite(ms) || ms < 0) throw new RangeError(`expected milliseconds, got ${ms}`);
    this.retryAfterMs = ms;
  }
}

/** The handler of a task failed: `cause` is what it threw, with its name, message, stack, code and cause. */
export class TaskFailed extends LaboroError {
  /** The number of the job. */
  readonly job: number;
  /** The place of the task in its job, from 0. */
  readonly index: number;
  /** The number of the task that users see. */
  readonly number: number;

  constructor(
    job: number,
    { index, number }: { readonly index: number; readonly number: number },
    message: string,
    cause: Error | undefined,
  ) {
    super("LABORO_TASK_FAILED", message, cause === undefined ? undefined : { cause });
    this.job = job;
    this.index = index;
    this.number = number;
  }
}

/**
 * Characters of a name, message, stack or code, and how many causes are kept. All of them together fit into a value of
 * a result, also where JSON writes each character as six bytes.
 */
const MAX_TEXT = 16_384;
const MAX_CAUSE_TEXT = 2_048;
const MAX_CAUSES = 8;

const UNREADABLE = "the handler threw a value that cannot be written as text";

const clip = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)} …` : text);

/** Never throws, whatever was thrown: its members may be getters that throw. */
export function describeError(thrown: unknown, depth = 0): ErrorDetails {
  try {
    return membersOf(thrown, depth);
  } catch {
    return { name: "Error", message: UNREADABLE };
  }
}

function membersOf(thrown: unknown, depth: number): ErrorDetails {
  const clipped = (text: string): string => clip(text, depth === 0 ? MAX_TEXT : MAX_CAUSE_TEXT);
  if (typeof thrown === "string") return { name: "Error", message: clipped(thrown) };
  if (typeof thrown !== "object" || thrown === null)
    return { name: "Error", message: clipped(`the handler threw ${textOf(thrown)}`) };
  const { name, message, stack, code, cause, retryAfterMs } = thrown as Record<string, unknown>;
  return {
    name: typeof name === "string" ? clipped(name) : "Error",
    message: clipped(typeof message === "string" ? message : textOf(thrown)),
    ...(typeof stack === "string" ? { stack: clipped(stack) } : {}),
    ...(typeof code === "string" ? { code: clipped(code) } : typeof code === "number" ? { code } : {}),
    ...(cause === undefined || depth === MAX_CAUSES ? {} : { cause: describeError(cause, depth + 1) }),
    ...(isRetryAfter(retryAfterMs)
      ? { retryAfterMs: retryAfterMs === "never" ? retryAfterMs : Math.min(retryAfterMs, MAX_RETRY_AFTER_MS) }
      : {}),
  };
}

/** A hundred years, as for other waits: a store holds it. */
const MAX_RETRY_AFTER_MS = 100 * 365 * 86_400_000;

const isRetryAfter = (value: unknown): value is RetryAfterMs =>
  value === "never" || (typeof value === "number" && value >= 0 && value < Number.POSITIVE_INFINITY);

function textOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return UNREADABLE;
  }
}

export function errorFrom({ name, message, stack, code, cause, retryAfterMs }: ErrorDetails): Error {
  const error = new Error(message, cause === undefined ? undefined : { cause: errorFrom(cause) });
  // Not enumerable, as in an error that was never sent.
  for (const [key, value] of Object.entries({ name, stack: stack ?? `${name}: ${message}` }))
    Object.defineProperty(error, key, { value, configurable: true, writable: true });
  return Object.assign(error, code === undefined ? {} : { code }, retryAfterMs === undefined ? {} : { retryAfterMs });
}

/** The error in the value of a failed task; undefined if the value is not an error. */
export function errorFromValue(value: Uint8Array | undefined): Error | undefined {
  if (value === undefined || value.length === 0) return undefined;
  try {
    return errorFrom(JSON.parse(Buffer.from(value.buffer, value.byteOffset, value.length).toString()) as ErrorDetails);
  } catch {
    return undefined;
  }
}
