/**
 * The HTTP API: every operation of the table, below /api/v1, and the OpenAPI document. The main listener has
 * authenticated the request, Fastify finds the route and reads the body, the table defines input and output.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { ERROR_CODES } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { JsonSchema } from "../../model/schema.js";
import type { Role } from "../access/tokens.js";
import type { Core } from "../core.js";
import { authorizeAndRead, OPERATIONS, OPERATIONS_BY_NAME, perform } from "../operations/index.js";
import { submitLarge } from "../operations/jobs.js";
import type { AnyOperation, BrokerInfo, OperationContext } from "../operations/operation.js";
import {
  handleRawRequest,
  inputOf,
  jsonOf,
  notFound,
  readJson,
  replyError,
  sendRawOutput,
  streamEvents,
} from "./json.js";
import { SharedResponses } from "./shared-responses.js";

const BASE = "/api/v1";
const BODY_LIMIT = 1024 * 1024;
/** For submissions and requests to services. */
const LARGE_BODY_LIMIT = 64 * BODY_LIMIT;
/** `shared`: the client accepts a cached answer, up to a second old. */
const SHARED_HEADER = "laboro-cache";

type Api = (request: IncomingMessage, response: ServerResponse, role: Role) => Promise<void>;

export function createApi(core: Core, info: BrokerInfo, log: Log): Api {
  const callers = new WeakMap<IncomingMessage, Caller>();
  const contextOf = (request: FastifyRequest, reply: FastifyReply): OperationContext => {
    const closed = new AbortController();
    reply.raw.once("close", () => closed.abort());
    return { role: callers.get(request.raw)?.role ?? "worker", signal: closed.signal, info };
  };
  const app = build(core, log, contextOf, (request, bytes) => callers.get(request.raw)?.bodyRead(bytes));
  const ready = app.ready();
  return async (request, response, role) => {
    const asks = info.asks.connection(role);
    // Counted before the body is read, and as it is afterwards.
    let counted = bodyBytes(request);
    asks.add(counted);
    response.once("close", () => asks.remove(counted));
    const bodyRead = (bytes: number): void => {
      asks.remove(counted);
      counted = bytes;
      asks.add(counted);
    };
    callers.set(request, { role, bodyRead });
    await ready;
    app.routing(request, response);
  };
}

interface Caller {
  readonly role: Role;
  bodyRead(bytes: number): void;
}

/** The announced length. Until it is read, a body without one counts as the largest allowed. */
function bodyBytes({ headers }: IncomingMessage): number {
  const announced = headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : Infinity;
  return Math.min(announced, LARGE_BODY_LIMIT);
}

type ContextOf = (request: FastifyRequest, reply: FastifyReply) => OperationContext;

function build(
  core: Core,
  log: Log,
  contextOf: ContextOf,
  bodyRead: (request: FastifyRequest, bytes: number) => void,
): FastifyInstance {
  const app = fastify({
    // The main listener has its own server; this one never listens.
    serverFactory: (handler) => createServer(handler),
    bodyLimit: BODY_LIMIT,
    routerOptions: { maxParamLength: 4096 },
    frameworkErrors: (error, _request, reply) => void replyError(error, reply, log),
  });
  app.setErrorHandler((error, _request, reply) => replyError(error, reply, log));
  app.setNotFoundHandler((request, reply) => replyError(notFound(request), reply, log, 404));
  app.addHook("onRequest", async (_request, reply) => {
    reply.header("cache-control", "no-store").header("x-content-type-options", "nosniff");
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", { parseAs: "buffer" }, (request, body, done) => {
    bodyRead(request, body.length);
    readJson(body, request.routeOptions.url === routeOf(OPERATIONS.submit.path), done);
  });
  const sharedResponses = new SharedResponses();
  let document: string | undefined;
  app.get(`${BASE}/openapi.json`, async (_request, reply) => {
    document ??= JSON.stringify(openApi(contextOf(_request, reply).info.version));
    return reply.type("application/json").send(document);
  });
  for (const one of OPERATIONS_BY_NAME.values())
    if (one.name !== "request") addRoute(app, core, one, contextOf, sharedResponses);
  app.register(async (raw) => {
    // The body of a request to a service may have any type.
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser("*", { parseAs: "buffer" }, (request, body, done) => {
      bodyRead(request, body.length);
      done(null, body);
    });
    raw.post(routeOf("/services/{service}"), { bodyLimit: LARGE_BODY_LIMIT }, (request, reply) =>
      handleRawRequest(core, request, reply, contextOf(request, reply)),
    );
  });
  return app;
}

function addRoute(
  app: FastifyInstance,
  core: Core,
  one: AnyOperation,
  contextOf: ContextOf,
  sharedResponses: SharedResponses,
): void {
  const shared = mayBeShared(one);
  app.route({
    method: one.method,
    url: routeOf(one.path),
    bodyLimit: one.bodyLimit ?? BODY_LIMIT,
    handler: async (request, reply) => {
      const context = contextOf(request, reply);
      const input = inputOf(one, request);
      const accepts = request.headers.accept ?? "";
      if (one.name === "events" && accepts.includes("text/event-stream")) {
        return streamEvents(core, request, reply, input, context);
      }
      if (one.name === "output" && accepts.includes("application/octet-stream")) {
        return sendRawOutput(core, request, reply, input, context);
      }
      if (shared && request.headers[SHARED_HEADER] === "shared") {
        authorizeAndRead(one, input, context.role);
        const { text, etag } = await sharedResponses.get(
          `${context.role} ${one.name} ${JSON.stringify(input)}`,
          async () => jsonOf(await perform(core, one.name, input, { ...context, signal: NEVER_ABORTED })),
        );
        reply.header("etag", etag);
        if (request.headers["if-none-match"] === etag) return reply.code(304).send();
        return reply.type("application/json").send(text);
      }
      const { body } = request;
      const value = Buffer.isBuffer(body)
        ? await submitLarge(core, { bytes: body, format: "json" }, context.role)
        : await perform(core, one.name, input, context);
      return reply.type("application/json").send(jsonOf(value));
    },
  });
}

/** A shared response is made for all clients, so it is not aborted with one of them. */
const NEVER_ABORTED = new AbortController().signal;

/** Operations that are answered at once, and the same for every client of one role. */
function mayBeShared({ method, input, name }: AnyOperation): boolean {
  const waits = "waitMs" in input.shape || "timeoutMs" in input.shape;
  return method === "GET" && !waits && name !== "permissions" && name !== "connection";
}

const routeOf = (path: string): string => BASE + path.replaceAll(/\{(\w+)\}/g, ":$1");

// The OpenAPI document, generated from the table of operations.

const ERROR: JsonSchema = {
  type: "object",
  properties: {
    error: {
      type: "object",
      properties: { code: { type: "string", enum: Object.keys(ERROR_CODES) }, message: { type: "string" } },
      required: ["code", "message"],
      additionalProperties: false,
    },
  },
  required: ["error"],
  additionalProperties: false,
};

const BYTES = { "application/octet-stream": { schema: {} } };

function openApi(version: string): object {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const one of OPERATIONS_BY_NAME.values()) {
    const path = paths[one.path] ?? {};
    paths[one.path] = path;
    path[one.method.toLowerCase()] = describe(one);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "laboro",
      version,
      description: "Hands out work: a broker keeps it, workers do it, clients ask for it.",
    },
    servers: [{ url: BASE }],
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
      schemas: { Error: ERROR },
      responses: {
        Refusal: {
          description: "A refusal, with its code",
          content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
        },
      },
    },
  };
}

function describe(one: AnyOperation): object {
  const inPath = Array.from(one.path.matchAll(/\{(\w+)\}/g), ([, name = ""]) => name);
  const rest = Object.keys(one.input.shape).filter((name) => !inPath.includes(name));
  const raw = one.name === "request";
  const inQuery = one.method === "POST" && !raw ? [] : rest.filter((name) => name !== "body" || !raw);
  const inBody = one.method === "POST" && !raw ? rest : [];
  return {
    operationId: one.name,
    summary: one.summary,
    description: `Needs the role ${one.role}.`,
    parameters: [
      ...inPath.map((name) => parameter(one, name, "path")),
      ...inQuery.map((name) => parameter(one, name, "query")),
    ],
    ...(raw ? { requestBody: { content: BYTES } } : inBody.length > 0 ? { requestBody: bodyOf(one, inBody) } : {}),
    responses: {
      200: { description: "Done", content: raw ? BYTES : contentOf(one) },
      default: { $ref: "#/components/responses/Refusal" },
    },
  };
}

function parameter(one: AnyOperation, name: string, where: "path" | "query"): object {
  const { shape } = one.input;
  const { description, ...schema } = shape[name]?.json() ?? {};
  return {
    name,
    in: where,
    required: shape[name]?.optional !== true,
    ...(description === undefined ? {} : { description }),
    schema,
    // A list in a query is written 1,2,3.
    ...(schema.type === "array" ? { style: "form", explode: false } : {}),
  };
}

function bodyOf(one: AnyOperation, names: readonly string[]): object {
  const schema = one.input.json() as { properties: Record<string, unknown>; required?: readonly string[] };
  const properties = Object.fromEntries(names.map((name) => [name, schema.properties[name]]));
  const required = (schema.required ?? []).filter((name) => names.includes(name));
  return {
    required: required.length > 0,
    content: {
      "application/json": {
        schema: { ...schema, properties, ...(required.length > 0 ? { required } : { required: undefined }) },
      },
    },
  };
}

function contentOf(one: AnyOperation): object {
  const json = { "application/json": { schema: one.output.json() } };
  if (one.name === "output") return { ...json, ...BYTES };
  return one.name === "events" ? { ...json, "text/event-stream": { schema: { type: "string" } } } : json;
}
