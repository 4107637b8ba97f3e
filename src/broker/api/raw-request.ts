/** A request to a service: its body is the HTTP body, and so is the answer's. */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Core } from "../core.js";
import { perform } from "../operations/index.js";
import type { OperationContext } from "../operations/operation.js";
import { request as operation } from "../operations/services.js";
import { inputOf } from "./json.js";

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
