/** Errors over HTTP: a status, and `{"error": {"code", "message"}}`. */
import type { FastifyReply, FastifyRequest } from "fastify";
import { asLaboroError, badInput, type ErrorCode, errnoOf, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";

/** All others are 500. */
export const HTTP_STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  LABORO_BAD_INPUT: 400,
  LABORO_BAD_TOKEN: 401,
  LABORO_FORBIDDEN: 403,
  LABORO_NO_SUCH_JOB: 404,
  LABORO_NO_SUCH_LIMIT: 404,
  LABORO_NO_SUCH_TASK: 404,
  LABORO_NO_SUCH_WORKER: 404,
  LABORO_JOB_ENDED: 409,
  LABORO_JOB_OPEN: 409,
  LABORO_KEY_IN_USE: 409,
  LABORO_BODY_TOO_LARGE: 413,
  LABORO_SERVICE_FAILED: 502,
  LABORO_BAD_REPLY: 502,
  LABORO_WORKER_LOST: 502,
  LABORO_BROKER_STOPPING: 503,
  LABORO_QUEUE_FULL: 503,
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
