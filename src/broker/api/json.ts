/**
 * Requests and answers as JSON, and errors as `{"error": {"code", "message"}}` with a status. Bytes become text if they
 * are UTF-8, otherwise `{"base64": …}`.
 *
 * Answers that are streams: events, and the output of a task. Each follower of events has a position in the broker's
 * ring and gets the events after it as fast as it reads; nothing else is buffered. A follower that the ring overtakes
 * gets `missed`. One that reads nothing is dropped.
 */
import { isUtf8 } from "node:buffer";
import type { ServerResponse } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { asLaboroError, badInput, type ErrorCode, errnoOf, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { type Fields, fields, integer, unexpectedValue } from "../../model/input.js";
import { LARGE_SUBMISSION } from "../../model/job.js";
import type { Schema } from "../../model/schema.js";
import type { Core } from "../core.js";
import type { BrokerEvent } from "../events.js";
import { events as eventsOperation } from "../operations/events.js";
import { authorizeAndRead, perform } from "../operations/index.js";
import type { AnyOperation, OperationContext } from "../operations/operation.js";
import { output } from "../operations/output.js";
import { request as operation } from "../operations/services.js";

export const jsonOf = (value: object): string => JSON.stringify(plain(value));

export function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.length);
    return isUtf8(bytes) ? bytes.toString() : { base64: bytes.toString("base64") };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
}

/** The input of an operation from a request: path, query and body together. */
export function inputOf(operation: Pick<AnyOperation, "input">, request: FastifyRequest): Fields {
  const { shape } = operation.input;
  const input: Record<string, unknown> = {};
  const put = (name: string, value: unknown): void => {
    if (Object.hasOwn(input, name)) throw badInput(`${name}: given twice`);
    // Not by assignment: a name may be __proto__.
    Object.defineProperty(input, name, { value, enumerable: true, configurable: true, writable: true });
  };
  for (const texts of [request.params, request.query]) {
    for (const [name, text] of Object.entries(texts as Record<string, string | string[]>)) {
      put(name, fromTexts(Object.hasOwn(shape, name) ? shape[name] : undefined, text));
    }
  }
  const { body } = request;
  if (body === undefined || body === null || Buffer.isBuffer(body)) return input;
  for (const [name, value] of Object.entries(fields(body, "body"))) put(name, value);
  return input;
}

/** A field that is given several times is a list. */
function fromTexts(schema: Schema<unknown, unknown> | undefined, given: string | readonly string[]): unknown {
  const convert = (text: string): unknown => (schema?.fromText === undefined ? text : schema.fromText(text));
  return typeof given === "string" ? convert(given) : given.flatMap(convert);
}

export function readJson(
  body: string | Buffer,
  isSubmission: boolean,
  done: (error: Error | null, value?: unknown) => void,
): void {
  if (body.length === 0) {
    done(null, undefined);
    return;
  }
  // A thread reads it.
  if (isSubmission && body.length > LARGE_SUBMISSION) {
    done(null, body);
    return;
  }
  try {
    done(null, JSON.parse(body.toString()));
  } catch {
    done(unexpectedValue("body", "JSON", body.toString().slice(0, 40)));
  }
}

/** A request to a service: its body is the HTTP body, and so is the answer's. */
const TIMEOUT_HEADER = "laboro-timeout-ms";

export async function handleRawRequest(
  core: Core,
  request: FastifyRequest,
  reply: FastifyReply,
  context: OperationContext,
): Promise<FastifyReply> {
  const { params, query, body } = request;
  const given = inputOf(operation, { params, query } as FastifyRequest);
  const header = request.headers[TIMEOUT_HEADER];
  const timeout = typeof header === "string" && given.timeoutMs === undefined ? { timeoutMs: Number(header) } : {};
  const message = body instanceof Uint8Array ? { body } : {};
  const answer = (await perform(core, "request", { ...given, ...timeout, ...message }, context)) as {
    body: Uint8Array;
  };
  const { buffer, byteOffset, length } = answer.body;
  return reply.type("application/octet-stream").send(Buffer.from(buffer, byteOffset, length));
}

// Errors over HTTP: a status, and `{"error": {"code", "message"}}`.

/** All others are 500. */
export const HTTP_STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  LABORO_BAD_INPUT: 400,
  LABORO_BAD_TOKEN: 401,
  LABORO_FORBIDDEN: 403,
  LABORO_NO_SUCH_JOB: 404,
  LABORO_NO_SUCH_LIMIT: 404,
  LABORO_NO_SUCH_ALLOCATOR: 404,
  LABORO_NO_SUCH_SCHEDULE: 404,
  LABORO_NO_SUCH_TASK: 404,
  LABORO_NO_SUCH_WORKER: 404,
  LABORO_JOB_CLOSED: 409,
  LABORO_JOB_ENDED: 409,
  LABORO_JOB_OPEN: 409,
  LABORO_KEY_IN_USE: 409,
  LABORO_ALLOCATOR_EXISTS: 409,
  LABORO_SCHEDULE_EXISTS: 409,
  LABORO_BODY_TOO_LARGE: 413,
  LABORO_NOT_SUPPORTED: 501,
  LABORO_SERVICE_FAILED: 502,
  LABORO_BAD_REPLY: 502,
  LABORO_WORKER_LOST: 502,
  LABORO_BROKER_STOPPING: 503,
  LABORO_QUEUE_FULL: 503,
  LABORO_STORE_UNAVAILABLE: 503,
  LABORO_DEADLINE: 504,
  LABORO_NO_DESCRIPTORS: 503,
  LABORO_DISK_FULL: 507,
};

export function replyError(cause: unknown, reply: FastifyReply, log: Log, status?: number): FastifyReply {
  const { error, status: usual } = errorWithStatus(cause, reply.request.routeOptions?.bodyLimit);
  if (error.code === "LABORO_INTERNAL") log.error({ error: error.message }, "a request to the API failed");
  return reply
    .code(status ?? usual)
    .type("application/json")
    .send(JSON.stringify({ error: { code: error.code, message: error.message } }));
}

/** Errors of Fastify itself get a code here. */
function errorWithStatus(cause: unknown, bodyLimit: number | undefined): { error: LaboroError; status: number } {
  const status = statusIn(cause);
  if (cause instanceof LaboroError || status === undefined) {
    const error = asLaboroError(cause);
    return { error, status: HTTP_STATUS[error.code] ?? 500 };
  }
  const text = cause instanceof Error ? cause.message : String(cause);
  if (status === 413) {
    return { error: new LaboroError("LABORO_BODY_TOO_LARGE", `the body is larger than ${bodyLimit} bytes`), status };
  }
  if (errnoOf(cause) === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return { error: badInput("content-type: expected application/json"), status: 415 };
  }
  return { error: new LaboroError(status < 500 ? "LABORO_BAD_INPUT" : "LABORO_INTERNAL", text, { cause }), status };
}

function statusIn(cause: unknown): number | undefined {
  if (typeof cause !== "object" || cause === null || !("statusCode" in cause)) return undefined;
  return typeof cause.statusCode === "number" && cause.statusCode >= 400 ? cause.statusCode : undefined;
}

export const notFound = ({ method, url }: FastifyRequest): LaboroError =>
  badInput(`there is no ${method} ${url.split("?", 1)[0]?.slice(0, 200)}; /api/v1/openapi.json lists what there is`);

const HEARTBEAT_MS = 15_000;
/** Bytes that are buffered for a slow follower. */
const BUFFER = 256 * 1024;
/** A follower that reads nothing for this many heartbeats is dropped. */
const MAX_STUCK_HEARTBEATS = 2;
const FOLLOWERS = 1_000;
const PAGE = 100;

const following = new WeakMap<Core, number>();

/** The text of each event, made once for all followers. */
const texts = new WeakMap<BrokerEvent, string>();

function textOf(event: BrokerEvent): string {
  const known = texts.get(event);
  if (known !== undefined) return known;
  const text = `id: ${event.id}\ndata: ${JSON.stringify(event)}\n\n`;
  texts.set(event, text);
  return text;
}

export function streamEvents(
  core: Core,
  request: FastifyRequest,
  reply: FastifyReply,
  input: Fields,
  context: OperationContext,
): FastifyReply {
  const given = authorizeAndRead(eventsOperation, input, context.role);
  const seen = request.headers["last-event-id"];
  const after =
    typeof seen === "string" ? integer(Number(seen), "last-event-id", 0, Number.MAX_SAFE_INTEGER) : given.after;
  const followers = following.get(core) ?? 0;
  if (followers >= FOLLOWERS) throw new LaboroError("LABORO_QUEUE_FULL", `${followers} follow the events already`);
  following.set(core, followers + 1);
  reply.hijack();
  reply.raw.once("close", () => following.set(core, (following.get(core) ?? 1) - 1));
  follow(core, reply.raw, after ?? core.events.last, given.job);
  return reply;
}

function follow(core: Core, response: ServerResponse, start: number, job: number | undefined): void {
  response.writeHead(200, {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-accel-buffering": "no",
  });
  response.write(": laboro\n\n");
  let after = start;
  let stuck = 0;
  const pump = (): void => {
    while (response.writableLength < BUFFER) {
      const { events, last, missedUntil: until } = core.events.after(after, PAGE, job);
      // The id is that of the last lost event, so a follower that continues from it gets all later events.
      const missed =
        until === undefined ? "" : `event: missed\nid: ${until}\ndata: ${JSON.stringify({ after, until })}\n\n`;
      if (missed !== "" || events.length > 0) response.write(missed + events.map(textOf).join(""));
      after = last;
      if (after >= core.events.last) return;
    }
  };
  const heartbeat = setInterval(() => {
    if (response.writableLength < BUFFER) {
      stuck = 0;
      response.write(": heartbeat\n\n");
    } else if (++stuck >= MAX_STUCK_HEARTBEATS) response.destroy();
  }, HEARTBEAT_MS);
  heartbeat.unref();
  const unsubscribe = core.events.followers.add(pump);
  response.on("drain", pump);
  response.once("close", () => {
    clearInterval(heartbeat);
    unsubscribe();
  });
  pump();
}

// A task's output as raw bytes: the stored pieces one after the other, without offsets. A Range header counts these
// bytes. The output is measured first and then sent in pieces, so it need not fit into memory.

export async function sendRawOutput(
  core: Core,
  request: FastifyRequest,
  reply: FastifyReply,
  input: Fields,
  context: OperationContext,
): Promise<FastifyReply> {
  const given = authorizeAndRead(output, { ...input, limit: undefined, waitMs: undefined }, context.role);
  const first = await output.perform(core, { ...given, limit: 1 }, context);
  const attempt = given.attempt ?? first.attempt;
  const query = { ...given, ...(attempt === undefined ? {} : { attempt }) };
  let total = 0;
  for await (const bytes of piecesOf(core, query, context)) total += bytes.length;
  const range = parseRange(request.headers.range, total);
  reply.type("application/octet-stream").header("accept-ranges", "bytes");
  if (attempt !== undefined) reply.header("laboro-attempt", String(attempt));
  if (range === "outside") {
    const error = { code: "LABORO_BAD_INPUT", message: `range: there are ${total} bytes` };
    return reply
      .code(416)
      .header("content-range", `bytes */${total}`)
      .type("application/json")
      .send(JSON.stringify({ error }));
  }
  const { first: from, last } = range ?? { first: 0, last: total - 1 };
  if (range !== undefined) reply.code(206).header("content-range", `bytes ${from}-${last}/${total}`);
  reply.header("content-length", String(last - from + 1));
  if (last < from) return reply.send("");
  return reply.send(cut(piecesOf(core, query, context), { first: from, last }));
}

type OutputQuery = Parameters<typeof output.perform>[1];

async function* piecesOf(core: Core, query: OutputQuery, context: OperationContext): AsyncGenerator<Uint8Array> {
  let from: number | undefined = query.from;
  while (from !== undefined && !context.signal.aborted) {
    const page: Awaited<ReturnType<typeof output.perform>> = await output.perform(core, { ...query, from }, context);
    for (const { bytes } of page.pieces) yield bytes;
    from = page.next;
  }
}

function cut(pieces: AsyncGenerator<Uint8Array>, { first, last }: ByteRange): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      for (;;) {
        const { value, done } = at > last ? { value: undefined, done: true } : await pieces.next();
        if (done === true || value === undefined) {
          controller.close();
          return;
        }
        const start = Math.max(0, first - at);
        const end = Math.min(value.length, last + 1 - at);
        at += value.length;
        if (end <= start) continue;
        controller.enqueue(value.subarray(start, end));
        return;
      }
    },
    cancel: () => void pieces.return(undefined),
  });
}

/** The header `Range: bytes=…` with one range. */
interface ByteRange {
  readonly first: number;
  readonly last: number;
}

/** Undefined if the whole output is to be sent: the header is missing or not understood. */
export function parseRange(header: string | undefined, total: number): ByteRange | "outside" | undefined {
  const found = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? "");
  if (found === null) return undefined;
  const [, from = "", to = ""] = found;
  if (from === "" && to === "") return undefined;
  if (from === "") {
    const length = Math.min(Number(to), total);
    return length === 0 ? "outside" : { first: total - length, last: total - 1 };
  }
  const first = Number(from);
  const last = to === "" ? total - 1 : Math.min(Number(to), total - 1);
  if (to !== "" && Number(to) < first) return undefined;
  return first >= total ? "outside" : { first, last };
}
