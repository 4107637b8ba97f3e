/** Requests and answers as JSON, and errors as `{"error": {"code", "message"}}` with a status. Bytes become text if they are UTF-8, otherwise `{"base64": …}`. */
import { isUtf8 } from "node:buffer";
import type { FastifyReply, FastifyRequest } from "fastify";
import { asLaboroError, badInput, type ErrorCode, errnoOf, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { type Fields, fields, unexpectedValue } from "../../model/input.js";
import { LARGE_SUBMISSION } from "../../model/job.js";
import type { Schema } from "../../model/schema.js";
import type { Core } from "../core.js";
import { perform } from "../operations/index.js";
import type { AnyOperation, OperationContext } from "../operations/operation.js";
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

export function readJson(body: string | Buffer, done: (error: Error | null, value?: unknown) => void): void {
  if (body.length === 0) {
    done(null, undefined);
    return;
  }
  // Only a submission may be so large, and a thread reads it.
  if (body.length > LARGE_SUBMISSION) {
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
  const { error, status: usual } = errorWithStatus(cause);
  if (error.code === "LABORO_INTERNAL") log.error({ error: error.message }, "a request to the API failed");
  return reply
    .code(status ?? usual)
    .type("application/json")
    .send(JSON.stringify({ error: { code: error.code, message: error.message } }));
}

/** Errors of Fastify itself get a code here. */
function errorWithStatus(cause: unknown): { error: LaboroError; status: number } {
  const status = statusIn(cause);
  if (cause instanceof LaboroError || status === undefined) {
    const error = asLaboroError(cause);
    return { error, status: HTTP_STATUS[error.code] ?? 500 };
  }
  const text = cause instanceof Error ? cause.message : String(cause);
  if (status === 413) {
    return { error: new LaboroError("LABORO_BODY_TOO_LARGE", "the body is larger than the limit"), status };
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
