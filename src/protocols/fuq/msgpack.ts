/**
 * The subset of msgpack that fuq uses. Written by hand because fuq specifies the exact bytes, and because no package
 * reads hostile input as carefully: see docs/reference/dependencies.md.
 */
import { isUtf8 } from "node:buffer";
import { badMessage } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";

export type Value = null | boolean | number | Bytes | readonly Value[] | { readonly [field: string]: Value };

/** As the original writes it: the smallest form of each number and length, maps in the order of fields. */
export function packMsgpack(value: Value): Buffer {
  const parts: Uint8Array[] = [];
  pack(value, parts);
  return Buffer.concat(parts);
}

function pack(value: Value, parts: Uint8Array[]): void {
  if (value === null) parts.push(Buffer.of(0xc0));
  else if (typeof value === "boolean") parts.push(Buffer.of(value ? 0xc3 : 0xc2));
  else if (typeof value === "number") parts.push(integer(value));
  else if (typeof value === "string" || value instanceof Uint8Array) {
    const bytes = Buffer.from(value);
    parts.push(textHead(bytes.length), bytes);
  } else if (isList(value)) {
    parts.push(listHead(value.length));
    for (const one of value) pack(one, parts);
  } else {
    const fields = Object.entries(value);
    // No struct of fuq has more than the 15 fields of the smallest form.
    parts.push(Buffer.of(0x80 | fields.length));
    for (const field of fields) for (const one of field) pack(one, parts);
  }
}

const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

function integer(value: number): Buffer {
  if (value >= -0x20 && value < 0x80) return Buffer.of(value & 0xff);
  const fits = (bytes: number): boolean => (value < 0 ? value >= -(2 ** (8 * bytes - 1)) : value < 2 ** (8 * bytes));
  const power = [1, 2, 4].findIndex(fits);
  const log2 = power === -1 ? 3 : power;
  return number((value < 0 ? 0xd0 : 0xcc) + log2, value, 2 ** log2);
}

function textHead(length: number): Buffer {
  if (length < 0x20) return Buffer.of(0xa0 | length);
  if (length < 0x100) return number(0xd9, length, 1);
  return length < 0x1_0000 ? number(0xda, length, 2) : number(0xdb, length, 4);
}

function listHead(length: number): Buffer {
  if (length < 0x10) return Buffer.of(0x90 | length);
  return length < 0x1_0000 ? number(0xdc, length, 2) : number(0xdd, length, 4);
}

/** A negative number is in two's complement. */
function number(token: number, value: number, width: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(value));
  return Buffer.concat([Buffer.of(token), bytes.subarray(8 - width)]);
}

/** A field of a struct. `zero` is its value if it is missing. */
export interface Field<T> {
  readonly zero: T;
  readonly read: (from: MsgpackReader, key: string) => T;
}
/** A Go struct: its fields in order. On the wire their names begin with a capital letter. */
export type Struct = Readonly<Record<string, Field<unknown>>>;
type Values<S extends Struct> = { readonly [K in keyof S]: S[K] extends Field<infer T> ? T : never };

export const wireName = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

interface Token {
  readonly kind: "nil" | "false" | "true" | "integer" | "text" | "list" | "map" | "other";
  /** The number itself, the count of items, or the length of the bytes that follow. */
  readonly value: number;
}

/** No field of fuq has a longer name. */
const MAX_KEY = 64;

/**
 * Reads field by field. Memory is never allocated by a claimed length: lengths must fit the received bytes, and values
 * of unknown fields are skipped without recursion. Text that is not UTF-8 stays bytes. Bytes after the value are
 * ignored.
 */
export class MsgpackReader {
  readonly #bytes: Buffer;
  #at = 0;
  #tokenAt = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** Returns true and skips the value if it is nil. */
  nil(): boolean {
    if (this.#bytes[this.#at] !== 0xc0) return false;
    this.#at++;
    return true;
  }

  atList(): boolean {
    const { kind } = this.#next();
    this.#at = this.#tokenAt;
    return kind === "list";
  }

  /** Of any width; nil is 0. */
  integer(what: string): number {
    const { kind, value } = this.#next();
    if (kind !== "integer" && kind !== "nil") this.#unexpected(what, "a whole number");
    if (!Number.isSafeInteger(value)) throw badMessage(`${what} is ${value}, beyond 2^53`);
    return value;
  }

  flag(what: string): boolean {
    const { kind } = this.#next();
    if (kind !== "true" && kind !== "false" && kind !== "nil") this.#unexpected(what, "true or false");
    return kind === "true";
  }

  /** Nil is empty. */
  text(what: string): Bytes {
    const { kind, value } = this.#next();
    if (kind !== "text" && kind !== "nil") this.#unexpected(what, "text");
    const bytes = this.#take(value);
    return isUtf8(bytes) ? bytes.toString() : new Uint8Array(bytes);
  }

  /** Undefined for nil. */
  list<T>(what: string, most: number, readItem: (from: this) => T): T[] | undefined {
    const { kind, value: length } = this.#next();
    if (kind === "nil") return undefined;
    if (kind !== "list") this.#unexpected(what, "a list");
    if (length > most) throw badMessage(`${what} has ${length} items, expected at most ${most}`);
    this.#mustHold(length);
    return Array.from({ length }, () => readItem(this));
  }

  /** Nil, and missing fields, are zero. Unknown fields are skipped. */
  struct<S extends Struct>(what: string, struct: S): Values<S> {
    const { kind, value: length } = this.#next();
    if (kind !== "map" && kind !== "nil") this.#unexpected(what, "a map");
    this.#mustHold(length * 2);
    const values: Record<string, unknown> = {};
    for (let i = 0; i < length; i++) {
      const key = this.#key() ?? "";
      const name = key.charAt(0).toLowerCase() + key.slice(1);
      const field = Object.hasOwn(struct, name) && wireName(name) === key ? struct[name] : undefined;
      if (field === undefined) this.#skip();
      else values[name] = field.read(this, key);
    }
    for (const [name, { zero }] of Object.entries(struct)) values[name] ??= zero;
    return values as Values<S>;
  }

  /** Undefined for a key that cannot be the name of a field. */
  #key(): string | undefined {
    const { kind, value } = this.#next();
    if (kind === "text" && value <= MAX_KEY) return this.#take(value).toString("latin1");
    this.#at = this.#tokenAt;
    this.#skip();
    return undefined;
  }

  /** Skips one value with everything in it. */
  #skip(): void {
    for (let left = 1; left > 0; left--) {
      const { kind, value } = this.#next();
      if (kind === "list") left += value;
      else if (kind === "map") left += value * 2;
      else if (kind === "text" || kind === "other") this.#take(value);
      this.#mustHold(left - 1);
    }
  }

  #next(): Token {
    const token = this.#bytes[this.#at];
    if (token === undefined) throw badMessage(`it ends at byte ${this.#at}, in the middle of a value`);
    this.#tokenAt = this.#at++;
    if (token < 0x80) return { kind: "integer", value: token };
    if (token < 0x90) return { kind: "map", value: token & 0x0f };
    if (token < 0xa0) return { kind: "list", value: token & 0x0f };
    if (token < 0xc0) return { kind: "text", value: token & 0x1f };
    if (token >= 0xe0) return { kind: "integer", value: token - 0x100 };
    if (token === 0xc0) return { kind: "nil", value: 0 };
    if (token === 0xc1) throw badMessage(`byte ${this.#tokenAt} is 0xc1, which is no msgpack`);
    if (token <= 0xc3) return { kind: token === 0xc3 ? "true" : "false", value: 0 };
    if (token <= 0xc6) return { kind: "text", value: this.#unsigned(1 << (token - 0xc4)) };
    if (token <= 0xc9) return { kind: "other", value: 1 + this.#unsigned(1 << (token - 0xc7)) };
    if (token <= 0xcb) return { kind: "other", value: token === 0xca ? 4 : 8 };
    if (token <= 0xcf) return { kind: "integer", value: this.#unsigned(1 << (token - 0xcc)) };
    if (token <= 0xd3) return { kind: "integer", value: this.#signed(1 << (token - 0xd0)) };
    if (token <= 0xd8) return { kind: "other", value: 1 + (1 << (token - 0xd4)) };
    if (token <= 0xdb) return { kind: "text", value: this.#unsigned(1 << (token - 0xd9)) };
    if (token <= 0xdd) return { kind: "list", value: this.#unsigned(2 << (token - 0xdc)) };
    return { kind: "map", value: this.#unsigned(2 << (token - 0xde)) };
  }

  #unsigned(width: number): number {
    const bytes = this.#take(width);
    return width === 8 ? Number(bytes.readBigUInt64BE()) : bytes.readUIntBE(0, width);
  }

  #signed(width: number): number {
    const bytes = this.#take(width);
    return width === 8 ? Number(bytes.readBigInt64BE()) : bytes.readIntBE(0, width);
  }

  #take(count: number): Buffer {
    const left = this.#bytes.length - this.#at;
    if (count > left) throw badMessage(`${count} bytes are claimed at byte ${this.#at}, ${left} are left`);
    this.#at += count;
    return this.#bytes.subarray(this.#at - count, this.#at);
  }

  /** Every value takes at least one byte. */
  #mustHold(values: number): void {
    const left = this.#bytes.length - this.#at;
    if (values > left) throw badMessage(`${values} values are claimed at byte ${this.#at}, ${left} bytes are left`);
  }

  #unexpected(what: string, expected: string): never {
    const token = this.#bytes[this.#tokenAt]?.toString(16);
    throw badMessage(`${what} begins with 0x${token} at byte ${this.#tokenAt}, expected ${expected}`);
  }
}
