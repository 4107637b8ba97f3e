/** Readers of foreign values. Each throws LABORO_BAD_INPUT with the expected form and the value. */
import { badInput, type LaboroError } from "../base/errors.js";
import type { Bytes } from "./recipe.js";

declare global {
  interface String {
    /** ES2024; every Node that laboro runs on has it. */
    isWellFormed(): boolean;
  }
}

export type Fields = Readonly<Record<string, unknown>>;

export function unexpectedValue(what: string, expected: string, value: unknown): LaboroError {
  return badInput(`${what}: expected ${expected}, got ${describe(value)}`);
}

function describe(value: unknown): string {
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  const text = typeof value === "string" ? JSON.stringify(value) : Array.isArray(value) ? "a list" : asText(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** The `toString` of a foreign object may throw or be missing. */
const asText = (value: unknown): string => (typeof value === "object" && value !== null ? "an object" : String(value));

export function fields(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Uint8Array) {
    throw unexpectedValue(what, "an object", value);
  }
  return value as Fields;
}

export function refuseUnknown(object: Fields, known: readonly string[], what: string): void {
  for (const name of Object.keys(object)) {
    if (!known.includes(name))
      throw unexpectedValue(what, known.length === 0 ? "nothing" : `one of ${known.join(", ")}`, name);
  }
}

export function integer(value: unknown, what: string, min: number, max: number): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  throw unexpectedValue(what, `a whole number from ${min} to ${max}`, value);
}

export function positive(value: unknown, what: string): number {
  if (typeof value === "number" && Number.isFinite(value) && value > 0) return value;
  throw unexpectedValue(what, "a number above 0", value);
}

export function number(value: unknown, what: string): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw unexpectedValue(what, "a number", value);
}

/** JSON may contain a lone surrogate, UTF-8 cannot. No message of the link could carry it. */
function wellFormed(text: string, what: string): string {
  if (text.isWellFormed()) return text;
  throw unexpectedValue(what, "text without half of a surrogate pair", text);
}

export function text(value: unknown, what: string, maxLength = 1024): string {
  if (typeof value === "string" && value.length > 0 && value.length <= maxLength && !value.includes("\0"))
    return wellFormed(value, what);
  throw unexpectedValue(what, `text of 1 to ${maxLength} characters without NUL`, value);
}

export function flag(value: unknown, what: string): boolean {
  if (typeof value === "boolean") return value;
  throw unexpectedValue(what, "true or false", value);
}

/** Bytes, text, or an object with base64, for formats without bytes such as JSON. */
export function bytes(value: unknown, what: string): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (typeof value === "string") return Buffer.from(value);
  const decoded = fromBase64(value);
  if (decoded !== undefined) return decoded;
  throw unexpectedValue(what, "text, bytes or {base64}", value);
}

/** Like `bytes`, but text stays text. */
export function textOrBytes(value: unknown, what: string): Bytes {
  if (typeof value === "string") return wellFormed(value, what);
  if (value instanceof Uint8Array) return value;
  const decoded = fromBase64(value);
  if (decoded !== undefined) return decoded;
  throw unexpectedValue(what, "text, bytes or {base64}", value);
}

/** For the command line of a process: no NUL. */
export function argument(value: unknown, what: string): Bytes {
  if (typeof value === "string" && !value.includes("\0")) return wellFormed(value, what);
  const given = value instanceof Uint8Array ? value : fromBase64(value);
  if (given !== undefined && !given.includes(0)) return given;
  throw unexpectedValue(what, "text or bytes without NUL", value);
}

function fromBase64(value: unknown): Uint8Array | undefined {
  if (typeof value !== "object" || value === null || !("base64" in value)) return undefined;
  const { base64, ...rest } = value;
  if (typeof base64 !== "string" || Object.keys(rest).length > 0) return undefined;
  const decoded = Buffer.from(base64, "base64");
  // Buffer ignores characters that are not base64. Then the bytes do not encode to the same text.
  const given = base64.replace(/=+$/, "").replaceAll("-", "+").replaceAll("_", "/");
  return decoded.toString("base64").replace(/=+$/, "") === given ? decoded : undefined;
}

export function list<T>(value: unknown, what: string, max: number, read: (item: unknown, what: string) => T): T[] {
  if (!Array.isArray(value)) throw unexpectedValue(what, "a list", value);
  if (value.length > max) throw unexpectedValue(what, `at most ${max} items`, value.length);
  return value.map((item: unknown, i) => {
    try {
      return read(item, what);
    } catch {
      // The name with the index is made only for an error, because lists can have millions of items.
      return read(item, `${what}[${i}]`);
    }
  });
}

export function optional<T>(value: unknown, what: string, read: (value: unknown, what: string) => T): T | undefined {
  return value === undefined || value === null ? undefined : read(value, what);
}

/** The properties that are not undefined, as exactOptionalPropertyTypes requires. */
export function definedOnly<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const defined: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(object)) if (value !== undefined) defined[name] = value;
  return defined as { [K in keyof T]?: Exclude<T[K], undefined> };
}
