/**
 * A schema defines the form of a value in one place. It reads foreign input, with a clear error if that is wrong; it
 * has a static type; and it can be published as JSON Schema. `Read` is the type that the reader returns, `Written` the
 * type that a caller may write.
 */
import type { Fields } from "./input.js";
import * as input from "./input.js";
import type { Bytes } from "./recipe.js";

export type JsonSchema = { readonly [name: string]: unknown };

export interface Schema<Read, Written = Read> {
  /** Throws LABORO_BAD_INPUT, with `what` as the name of the value. */
  read(value: unknown, what: string): Read;
  json(): JsonSchema;
  /** Parses the value from a path or a query. If absent, the value is the text itself. */
  fromText?(text: string): unknown;
  /** May be absent from an object. */
  readonly optional?: boolean;
  /** The reader fills in a default if it is absent. */
  readonly defaulted?: boolean;
  /** Never set. Keeps the type distinct. */
  readonly written?: Written;
}

export type ReadType<S> = S extends Schema<infer Read, unknown> ? Read : never;
export type WrittenType<S> = S extends Schema<unknown, infer Written> ? Written : never;

/** A schema whose value may be left out of an object. */
export type Optional<Read, Written> = Schema<Read, Written> & { readonly optional: true };
/** Like `Optional`, but the reader fills in a default. */
type Defaulted<Read, Written> = Schema<Read, Written> & { readonly optional: true; readonly defaulted: true };

export type Shape = Readonly<Record<string, Schema<unknown, unknown>>>;
type Flatten<T> = { [K in keyof T]: T[K] };
type OptionalReadKeys<S extends Shape> = {
  [K in keyof S]: S[K] extends { defaulted: true } ? never : S[K] extends { optional: true } ? K : never;
}[keyof S];
type OptionalWrittenKeys<S extends Shape> = { [K in keyof S]: S[K] extends { optional: true } ? K : never }[keyof S];
type ReadObject<S extends Shape> = Flatten<
  { readonly [K in keyof S as K extends OptionalReadKeys<S> ? never : K]: ReadType<S[K]> } & {
    readonly [K in keyof S as K extends OptionalReadKeys<S> ? K : never]?: ReadType<S[K]>;
  }
>;
type WrittenObject<S extends Shape> = Flatten<
  { readonly [K in keyof S as K extends OptionalWrittenKeys<S> ? never : K]: WrittenType<S[K]> } & {
    // Also where the caller's compiler tells undefined from absent: { key: options.key }.
    readonly [K in keyof S as K extends OptionalWrittenKeys<S> ? K : never]?: WrittenType<S[K]> | undefined;
  }
>;

export interface ObjectSchema<S extends Shape> extends Schema<ReadObject<S>, WrittenObject<S>> {
  readonly shape: S;
}

/** Unknown members are refused. */
export function object<S extends Shape>(shape: S): ObjectSchema<S> {
  const names = Object.keys(shape);
  const members = Object.entries(shape);
  return {
    shape,
    read: (value, what) => {
      const given = input.fields(value, what || "input");
      input.refuseUnknown(given, names, what || "input");
      return readMembers(members, given, what) as ReadObject<S>;
    },
    json: () => {
      const required = names.filter((name) => shape[name]?.optional !== true);
      return {
        type: "object",
        properties: Object.fromEntries(Object.entries(shape).map(([name, member]) => [name, member.json()])),
        ...(required.length === 0 ? {} : { required }),
        additionalProperties: false,
      };
    },
  };
}

/** Only the members of the schema: input of a newer peer may have others. */
export const knownMembers = <S extends Shape>({ shape }: ObjectSchema<S>, given: Fields): Fields =>
  Object.fromEntries(Object.entries(given).filter(([name]) => Object.hasOwn(shape, name)));

function readMembers(members: [string, Schema<unknown>][], given: Fields, what: string): Record<string, unknown> {
  const read: Record<string, unknown> = {};
  for (const [name, member] of members) {
    if (member.optional === true && member.defaulted !== true && given[name] === undefined) continue;
    const value = member.read(given[name], what === "" ? name : `${what}.${name}`);
    if (value !== undefined) read[name] = value;
  }
  return read;
}

/** May be left out, or null. */
export function optional<R, W>(schema: Schema<R, W>): Optional<R, W> {
  return {
    ...schema,
    optional: true,
    // Only used inside an object, whose type then omits the member.
    read: (value, what) => input.optional(value, what, schema.read) as R,
  };
}

export function withDefault<R, W>(schema: Schema<R, W>, value: R): Defaulted<R, W> {
  return {
    ...optional(schema),
    defaulted: true,
    read: (given, what) => input.optional(given, what, schema.read) ?? value,
    json: () => ({ ...schema.json(), default: value }),
  };
}

/** Adds a description to the published schema. */
export function described<S extends Schema<unknown, unknown>>(schema: S, description: string): S {
  return { ...schema, json: () => ({ ...schema.json(), description }) };
}

export const integer = (min: number, max: number, description?: string): Schema<number> => ({
  read: (value, what) => input.integer(value, what, min, max),
  json: () => ({ type: "integer", minimum: min, maximum: max, ...(description && { description }) }),
  fromText: numberFrom,
});

export const count = (description?: string): Schema<number> => integer(0, Number.MAX_SAFE_INTEGER, description);

export const positive = (description?: string): Schema<number> => ({
  read: input.positive,
  json: () => ({ type: "number", exclusiveMinimum: 0, ...(description && { description }) }),
  fromText: numberFrom,
});

/** Any number, such as a time. */
export const number = (description?: string): Schema<number> => ({
  read: input.number,
  json: () => ({ type: "number", ...(description && { description }) }),
  fromText: numberFrom,
});

function numberFrom(text: string): unknown {
  return /^-?\d+(\.\d+)?(e\d{1,3})?$/.test(text) ? Number(text) : text;
}

export const text = (maxLength = 1024): Schema<string> => ({
  read: (value, what) => input.text(value, what, maxLength),
  json: () => ({ type: "string", minLength: 1, maxLength: maxLength }),
});

/** Text that may be empty. */
export const anyText = (maxLength = 1024): Schema<string> => ({
  read: (value, what) => (value === "" ? "" : input.text(value, what, maxLength)),
  json: () => ({ type: "string", maxLength: maxLength }),
});

export const flag = (description?: string): Schema<boolean> => ({
  read: input.flag,
  json: () => ({ type: "boolean", ...(description && { description }) }),
  fromText: (given) => (given === "true" || given === "" ? true : given === "false" ? false : given),
});

export function choice<const T extends string>(...values: readonly T[]): Schema<T> {
  const listed = values.length > 1 ? `${values.slice(0, -1).join(", ")} or ${values.at(-1)}` : `${values[0]}`;
  return {
    read: (value, what) => {
      const found = values.find((one) => one === value);
      if (found === undefined) throw input.unexpectedValue(what, listed, value);
      return found;
    },
    json: () => ({ type: "string", enum: values }),
  };
}

export function list<R, W>(item: Schema<R, W>, max: number): Schema<readonly R[], readonly W[]> {
  return {
    read: (value, what) => input.list(value, what, max, item.read),
    json: () => ({ type: "array", items: item.json(), maxItems: max }),
    fromText: (given) => given.split(",").map((one) => item.fromText?.(one) ?? one),
  };
}

/** Values under names that the caller chooses. */
export function record<R, W>(member: Schema<R, W>): Schema<Readonly<Record<string, R>>, Readonly<Record<string, W>>> {
  return {
    read: (value, what) => {
      const given = Object.entries(input.fields(value, what));
      return Object.fromEntries(given.map(([name, one]) => [name, member.read(one, `${what}.${name}`)]));
    },
    json: () => ({ type: "object", additionalProperties: member.json() }),
  };
}

/** Bytes in JSON: text if they are UTF-8, otherwise base64. On laboro's own link they are bytes. */
type WrittenBytes = Bytes | { readonly base64: string };

const BYTES_JSON: JsonSchema = {
  anyOf: [
    { type: "string" },
    {
      type: "object",
      properties: { base64: { type: "string", contentEncoding: "base64" } },
      required: ["base64"],
      additionalProperties: false,
    },
  ],
};

export const bytes = (): Schema<Uint8Array, WrittenBytes> => ({ read: input.bytes, json: () => BYTES_JSON });

/** Text stays text. */
export const textOrBytes = (): Schema<Bytes, WrittenBytes> => ({ read: input.textOrBytes, json: () => BYTES_JSON });

/** For the command line of a process: no NUL. Text stays text. */
export const argument = (): Schema<Bytes, WrittenBytes> => ({ read: input.argument, json: () => BYTES_JSON });

/** One of several objects, distinguished by their member `kind`. */
export function unionByKind<S extends Readonly<Record<string, Schema<object, object>>>>(
  variants: S,
): Schema<ReadType<S[keyof S]>, WrittenType<S[keyof S]>> {
  const kind = choice(...Object.keys(variants));
  return {
    read: (value, what) => {
      const named = kind.read(input.fields(value, what).kind, `${what}.kind`);
      return variants[named]?.read(value, what) as ReadType<S[keyof S]>;
    },
    json: () => ({ oneOf: Object.values(variants).map((one) => one.json()) }),
  };
}

/** A schema that converts the value that another schema has read. */
export function mapped<R, W, To>(schema: Schema<R, W>, map: (value: R, what: string) => To): Schema<To, W> {
  return { ...schema, read: (value, what) => map(schema.read(value, what), what) } as Schema<To, W>;
}
