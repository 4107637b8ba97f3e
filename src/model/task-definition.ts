/**
 * Task definitions: a name, the type of the input and the type of the result. Clients and workers share a definition;
 * this module loads neither. Inputs and results are sent as JSON, or as bytes if the schema is `bytes`.
 *
 * What a handler threw, as it is stored and sent: name, message, stack, code, cause.
 */
import { badInput, type ErrorCode, LaboroError } from "../base/errors.js";
import type { RetryAfterMs } from "./outcome.js";

/** What zod, valibot, arktype and others implement: https://standardschema.dev. */
export interface StandardSchema<Input = unknown, Output = Input> {
  /** The members of the specification, https://standardschema.dev. */
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    /** Returns the value, transformed by the schema, or the reasons why it is invalid. */
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What `defineTask` takes. */
export interface TaskOptions<Input, Output, Parsed> {
  /** Checks the input when a client adds it, and again before the handler, which gets what the schema returns. */
  readonly input?: StandardSchema<Input, Parsed>;
  /** Checks what the handler returns. */
  readonly output?: StandardSchema<Output>;
}

/** A kind of task. `Input` is what a client gives, `Parsed` what the handler gets, `Output` what it returns. */
export interface TaskDefinition<Input = unknown, Output = unknown, Parsed = Input> {
  /** The name of the service that its handlers offer. */
  readonly name: string;
  /** Checks the input, at `add` and before the handler. */
  readonly input: StandardSchema | undefined;
  /** Checks what the handler returns. */
  readonly output: StandardSchema | undefined;
  /** Never set. Keeps the types. */
  readonly types?: { readonly input: Input; readonly output: Output; readonly parsed: Parsed };
  /** A handler for this task, to be exported by a module that runs in threads. */
  handler(run: TaskFunction<Parsed, Output>): TaskHandler;
}

/** Runs one task. Its return value, or the value of the returned promise, is the result. */
export type TaskFunction<Parsed, Output> = (
  input: Parsed,
  context: HandlerContext,
  // A promise twice: of an async function that returns something else, compilers then name what it returns.
) => Output | Promise<Output> | PromiseLike<Output>;

/** A task and the function that does it, as `task.handler(…)` makes it. */
export interface TaskHandler {
  /** The task that it handles. */
  readonly task: TaskDefinition<unknown, unknown, unknown>;
  /** The function that is called for each task. */
  readonly run: TaskFunction<never, unknown>;
}

/** The second argument of a handler: information about its task, and functions that it can call. */
export interface HandlerContext {
  /** The job's number; 0 for a request. */
  readonly job: number;
  /** The place of the task in its job, from 0. */
  readonly index: number;
  /** The number of the task that users see: its place from 1. */
  readonly number: number;
  /** 1 for the first. */
  readonly attempt: number;
  /** The job's key. */
  readonly key?: string | undefined;
  /** When the time limit or the timeout of the client ends, in milliseconds since 1970. */
  readonly deadline?: number | undefined;
  /** The jobs that this job depends on. */
  readonly after: readonly number[];
  /**
   * Aborted when the task is cancelled or past its time limit, when the client no longer waits, or when the worker
   * stops. The `code` of its `reason` tells them apart: LABORO_TASK_CANCELLED, LABORO_DEADLINE, LABORO_WORKER_STOPPING;
   * of a request also LABORO_BROKER_GONE. A copy of this object, `{ ...context }`, does not have it.
   */
  readonly signal: AbortSignal;
  /** Reports progress: any JSON value of at most 4 KiB. The last one is shown. At most two per second are sent. */
  progress(value: unknown): void;
  /** Writes a line to the task's output. Values other than text are formatted as by console.log. */
  log(...values: readonly unknown[]): void;
  /** The results of the jobs of this task that this job depends on, or of one of them, in order. */
  results<Output>(task: TaskDefinition<unknown, Output, unknown>, job?: number): AsyncIterable<TaskOutcome<Output>>;
}

/** The return value of a task's handler, or what it threw. */
export type TaskEnding<Output> =
  | {
      readonly state: "succeeded";
      /** What the handler returned. */
      readonly value: Output;
      readonly thrown?: undefined;
    }
  | {
      readonly state: "failed" | "cancelled";
      readonly value?: undefined;
      /** What the handler threw. If it threw nothing (a time limit, a lost worker), an error with the reason. */
      readonly thrown: Error;
    };

/** How a task ended, with what its handler returned or threw. */
export type TaskOutcome<Output> = {
  /** The number of the job. */
  readonly job: number;
  /** The place of the task in its job, from 0. */
  readonly index: number;
  /** The number that people see. */
  readonly number: number;
} & TaskEnding<Output>;

/** Defines a task. The types come from the schemas, or are given: `defineTask<{ file: string }, number>("count")`. */
export function defineTask<Input = unknown, Output = unknown, Parsed = Input>(
  name: string,
  options: TaskOptions<Input, Output, Parsed> = {},
): TaskDefinition<Input, Output, Parsed> {
  if (typeof name !== "string" || name === "") throw badInput("a task needs a name that is a text");
  const { input, output } = options;
  const task: TaskDefinition<Input, Output, Parsed> = {
    name,
    input,
    output,
    handler: (run) => ({ task, run }),
  };
  return task;
}

const BYTES_VENDOR = "laboro.bytes";

/** Bytes that are not JSON: `defineTask("thumb", { input: bytes, output: bytes })`. Readers get a Buffer. */
export const bytes: StandardSchema<Uint8Array, Buffer> = {
  "~standard": {
    version: 1,
    vendor: BYTES_VENDOR,
    validate: (value) =>
      value instanceof Uint8Array ? { value: asBuffer(value) } : { issues: [{ message: "expected a Uint8Array" }] },
  },
};

/** A type without a check: `defineTask("thumb", { input: schema, output: json<{ out: string }>() })`. */
export const json = <Value>(): StandardSchema<Value> => ({
  "~standard": { version: 1, vendor: "laboro", validate: (value) => ({ value: value as Value }) },
});

export const asBuffer = (value: Uint8Array): Buffer =>
  Buffer.isBuffer(value) ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);

const isBytes = (schema: StandardSchema | undefined): boolean => schema?.["~standard"].vendor === BYTES_VENDOR;

type Checked = Pick<TaskDefinition, "name" | "input" | "output">;

/** The input as it is sent. Rejects with LABORO_BAD_INPUT if the schema refuses it or JSON cannot express it. */
export async function encodeInput(task: Checked, input: unknown): Promise<string | Uint8Array> {
  if (typeof task?.name !== "string") throw badInput(`expected a task, as defineTask makes it, got ${typeof task}`);
  await validate(task.input, input, `task ${task.name}: the input`);
  return encode(task.input, input, `task ${task.name}: the input`);
}

export async function decodeInput(task: Checked, body: Uint8Array): Promise<unknown> {
  return validate(task.input, decode(task.input, body, `task ${task.name}: the input`), `task ${task.name}: the input`);
}

export async function encodeOutput(task: Checked, output: unknown): Promise<string | Uint8Array> {
  const what = `task ${task.name}: what the handler returned`;
  try {
    return encode(task.output, await validate(task.output, output, what), what);
  } catch (cause) {
    if (!(cause instanceof LaboroError)) throw cause;
    throw new LaboroError("LABORO_BAD_REPLY", cause.message, { cause: cause.cause });
  }
}

export const decodeOutput = (task: Pick<Checked, "name" | "output">, body: Uint8Array | undefined): unknown =>
  decode(task.output, body ?? new Uint8Array(0), `task ${task.name}: the result`, "LABORO_BAD_REPLY");

/** `undefined` is sent as an empty value, because JSON does not have it. */
function encode(schema: StandardSchema | undefined, value: unknown, what: string): string | Uint8Array {
  if (isBytes(schema)) return value as Uint8Array;
  if (value === undefined) return "";
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw badInput(`${what} is no JSON: ${why}`, cause);
  }
  if (text === undefined) throw badInput(`${what} is no JSON: it is a ${typeof value}`);
  return text;
}

function decode(
  schema: StandardSchema | undefined,
  body: Uint8Array,
  what: string,
  code: ErrorCode = "LABORO_BAD_INPUT",
): unknown {
  if (isBytes(schema)) return asBuffer(body);
  if (body.length === 0) return undefined;
  try {
    return JSON.parse(asBuffer(body).toString());
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new LaboroError(code, `${what} is no JSON: ${why}`, { cause });
  }
}

async function validate(schema: StandardSchema | undefined, value: unknown, what: string): Promise<unknown> {
  if (schema === undefined) return value;
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return result.value;
  throw badInput(`${what}: ${result.issues.map(issueText).join("; ")}`);
}

function issueText({ path = [], message }: SchemaIssue): string {
  const keys = path.map((part) => String(typeof part === "object" ? part.key : part));
  return keys.length === 0 ? message : `${keys.join(".")}: ${message}`;
}

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
  /** The name of this class, as every error has it. */
  override readonly name = "NoRetry";
  /** By this the worker knows that the task is not tried again, also from another copy of this class. */
  readonly retryAfterMs = "never";
}

/** Thrown by a handler: the next attempt, if a retry is left, starts after this time. */
export class RetryAfter extends Error {
  /** The name of this class, as every error has it. */
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
  const { name, message, stack, code, cause, errors, retryAfterMs } = thrown as Record<string, unknown>;
  const own = typeof message === "string" ? message : `the handler threw ${jsonOf(thrown)}`;
  return {
    name: typeof name === "string" ? clipped(name) : "Error",
    message: clipped(own === "" && Array.isArray(errors) ? messagesOf(errors) : own),
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

/** Of an AggregateError: Node's own have no message when none of several addresses could be reached. */
const messagesOf = (errors: readonly unknown[]): string =>
  errors
    .slice(0, MAX_CAUSES)
    .map((error) => describeError(error, MAX_CAUSES).message)
    .join("; ");

/** Of an object that is no error. */
const jsonOf = (thrown: object): string => JSON.stringify(thrown) ?? textOf(thrown);

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
