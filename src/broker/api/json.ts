/** Answers as JSON. Bytes become text if they are UTF-8, otherwise `{"base64": …}`. */
import { isUtf8 } from "node:buffer";
import type { FastifyRequest } from "fastify";
import { badInput } from "../../base/errors.js";
import { type Fields, fields, unexpectedValue } from "../../model/input.js";
import { LARGE_SUBMISSION } from "../../model/job.js";
import type { Schema } from "../../model/schema.js";
import type { AnyOperation } from "../operations/operation.js";

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
