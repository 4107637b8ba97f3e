/** The OpenAPI document, generated from the table of operations. */

import { ERROR_CODES } from "../../base/errors.js";
import type { JsonSchema } from "../../model/schema.js";
import { OPERATIONS_BY_NAME } from "../operations/index.js";
import type { AnyOperation } from "../operations/operation.js";
import { BASE } from "./index.js";

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

export function openApi(version: string): object {
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
    security: [{ token: [] }, { cookie: [] }],
    paths,
    components: {
      securitySchemes: {
        token: { type: "http", scheme: "bearer" },
        cookie: { type: "apiKey", in: "cookie", name: "laboro" },
      },
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
