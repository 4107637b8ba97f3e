/** Recipes as maps on the wire. They go once a connection and job, so names beat bytes. */

import type { Bytes, Recipe, Stride } from "../../model/recipe.js";
import {
  amount,
  body,
  count,
  countWithin,
  flag,
  listOf,
  name,
  record,
  text,
  textOrBytes,
  fieldError,
} from "./codec-fields.js";
import { ROWS_LIMIT } from "./codec-limits.js";
import type { JobRecipe } from "./messages.js";

type Fields = Readonly<Record<string, unknown>>;

export function readRecipe(value: unknown): Recipe {
  const fields = record(value, "recipe");
  switch (fields.kind) {
    case "command":
      return {
        kind: "command",
        argv: listOfBytes(fields.argv, "argv"),
        ...optional("placeholders", fields.placeholders, flag),
        ...optional("shell", fields.shell, flag),
        ...optional("log", fields.log, text),
        ...processFields(fields),
      };
    case "script":
      return {
        kind: "script",
        content: body(fields.content, "content"),
        type: name(fields.type, "type"),
        ...optional("args", fields.args, listOfBytes),
        ...processFields(fields),
      };
    case "call":
      return { kind: "call", service: name(fields.service, "service"), ...optional("body", fields.body, body) };
    case "noop":
      return { kind: "noop" };
    default:
      throw fieldError("recipe kind", fields.kind, "command, script, call or noop");
  }
}

export function readLimits(value: unknown): JobRecipe["limits"] {
  const fields = record(value, "limits");
  return {
    outputCap: count(fields.outputCap, "outputCap"),
    ...optional("timeLimitMs", fields.timeLimitMs, amount),
  };
}

const processFields = (fields: Fields) => ({
  ...optional("array", fields.array, strides),
  ...optional("dir", fields.dir, textOrBytes),
  ...optional("env", fields.env, environment),
  ...optional("stdin", fields.stdin, body),
});

const strides = (value: unknown, what: string): Stride[] =>
  listOf(value, what, ROWS_LIMIT).map((item) => {
    const { first, last, step } = record(item, what);
    const from = countWithin(first, "first", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
    return {
      first: from,
      last: countWithin(last, "last", from, Number.MAX_SAFE_INTEGER),
      step: countWithin(step, "step", 1, Number.MAX_SAFE_INTEGER),
    };
  });

const listOfBytes = (value: unknown, what: string): Bytes[] =>
  listOf(value, what, ROWS_LIMIT).map((item) => textOrBytes(item, what));

function environment(value: unknown, what: string): Readonly<Record<string, Bytes>> {
  const found: Record<string, Bytes> = {};
  for (const [key, held] of Object.entries(record(value, what))) found[key] = textOrBytes(held, what);
  return found;
}

/** The field where it is there, no key at all where it is not. */
function optional<Key extends string, Value>(
  key: Key,
  value: unknown,
  read: (value: unknown, what: string) => Value,
): { readonly [K in Key]?: Value } {
  if (value === undefined || value === null) return {};
  return { [key]: read(value, key) } as { readonly [K in Key]?: Value };
}
