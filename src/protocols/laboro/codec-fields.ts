/** Readers of one field: they take whatever came and give what the message needs, or say what was received and expected. */
import { ERROR_CODES, type ErrorCode, LaboroError } from "../../base/errors.js";
import { type Attempt, JobId } from "../../model/ids.js";
import type { Resources, Bytes } from "../../model/recipe.js";
import { NAME_LIMIT, NAMES_LIMIT, ROWS_LIMIT, TEXT_LIMIT } from "./codec-limits.js";

export type Row = readonly unknown[];

/** One message or row: how it is written, and how it is read back. Fields that follow the known ones are ignored. */
export interface MessageCodec<Message> {
  readonly number: number;
  readonly write: (message: Message) => Row;
  readonly read: (row: Row) => Message;
}

export function count(value: unknown, what: string): number {
  if (typeof value === "number" && value >= 0 && Number.isSafeInteger(value)) return value;
  throw fieldError(what, value, "an integer of 0 or more");
}

export function countWithin(value: unknown, what: string, least: number, most: number): number {
  if (typeof value === "number" && value >= least && value <= most && Number.isSafeInteger(value)) return value;
  throw fieldError(what, value, `an integer from ${least} to ${most}`);
}

export const jobId = (value: unknown): JobId => JobId(count(value, "job"));
export const attemptOf = (value: unknown): Attempt => countWithin(value, "attempt", 1, Number.MAX_SAFE_INTEGER);

/** Milliseconds or another amount; it may have a fraction. */
export function amount(value: unknown, what: string): number {
  if (typeof value === "number" && value >= 0 && value < Number.POSITIVE_INFINITY) return value;
  throw fieldError(what, value, "a number of 0 or more");
}

export function flag(value: unknown, what: string): boolean {
  if (typeof value === "boolean") return value;
  throw fieldError(what, value, "true or false");
}

export function name(value: unknown, what: string): string {
  if (typeof value !== "string") throw fieldError(what, value, "a name");
  if (value.length === 0) throw fieldError(what, value, "a name that is not empty");
  if (value.length * 3 > NAME_LIMIT && Buffer.byteLength(value) > NAME_LIMIT) {
    throw fieldError(what, value, `a name of at most ${NAME_LIMIT} bytes`);
  }
  return value;
}

export function text(value: unknown, what: string): string {
  if (typeof value === "string" && value.length <= TEXT_LIMIT) return value;
  throw fieldError(what, value, `a text of at most ${TEXT_LIMIT} characters`);
}

export function body(value: unknown, what: string): Uint8Array {
  if (value instanceof Uint8Array) return value;
  throw fieldError(what, value, "bytes");
}

export function textOrBytes(value: unknown, what: string): Bytes {
  if (typeof value === "string" || value instanceof Uint8Array) return value;
  throw fieldError(what, value, "text or bytes");
}

export function rows<Item>(value: unknown, what: string, read: (row: Row) => Item): Item[] {
  const list = listOf(value, what, ROWS_LIMIT);
  const items: Item[] = [];
  for (const row of list) {
    if (!Array.isArray(row)) throw fieldError(what, row, "a row");
    items.push(read(row));
  }
  return items;
}

export function names(value: unknown, what: string): string[] {
  return listOf(value, what, NAMES_LIMIT).map((item) => name(item, what));
}

export function listOf(value: unknown, what: string, limit: number): Row {
  if (!Array.isArray(value)) throw fieldError(what, value, "a list");
  if (value.length > limit) throw fieldError(what, value, `a list of at most ${limit}`);
  return value;
}

export function record(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Uint8Array) {
    throw fieldError(what, value, "a map");
  }
  return value as Readonly<Record<string, unknown>>;
}

export function amounts(value: unknown, what: string): Resources {
  const found: Record<string, number> = {};
  const entries = Object.entries(record(value, what));
  if (entries.length > NAMES_LIMIT) throw fieldError(what, value, `at most ${NAMES_LIMIT} amounts`);
  for (const [key, held] of entries) found[name(key, what)] = amount(held, what);
  const { slots } = found;
  if (slots === undefined) throw fieldError(what, value, "a map with slots");
  return { ...found, slots };
}

export const isErrorCode = (text: string): text is ErrorCode => Object.hasOwn(ERROR_CODES, text);

export function errorCode(value: unknown, what: string): ErrorCode {
  if (typeof value === "string" && isErrorCode(value)) return value;
  throw fieldError(what, value, "a LABORO_ code");
}

/** Words that travel as their position in a list which only ever grows. */
export function enumValue<Word extends string>(value: unknown, what: string, words: readonly Word[]): Word {
  const found = typeof value === "number" ? words[value] : undefined;
  if (found === undefined) throw fieldError(what, value, `a number for one of ${words.join(", ")}`);
  return found;
}

/** A text for a person, cut to what the other end takes: a long error must not cost the link. */
export function clipped(value: string): string {
  const short = value.length > TEXT_LIMIT ? `${value.slice(0, TEXT_LIMIT - 1)}…` : value;
  // Half a surrogate pair is no UTF-8; a Buffer replaces it.
  return /[\ud800-\udfff]/.test(short) ? Buffer.from(short).toString() : short;
}

export function fieldError(what: string, received: unknown, expected: string): LaboroError {
  return new LaboroError("LABORO_BAD_MESSAGE", `${what} is ${describeValue(received)}, expected ${expected}`);
}

/** Enough of a value to recognise it by. */
export function describeValue(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "string") {
    return value.length > 40
      ? `${JSON.stringify(value.slice(0, 40))}… (${value.length} characters)`
      : JSON.stringify(value);
  }
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "object" && value !== null) return "a map";
  return String(value);
}
