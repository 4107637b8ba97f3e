/**
 * What a frame of the link may hold, and the readers of the fields of a message beside those of model/input.ts. Like these they throw
 * LABORO_BAD_INPUT with the expected form and the value; decodeFrame makes LABORO_BAD_MESSAGE of it.
 */
import { ERROR_CODES, type ErrorCode } from "../../base/errors.js";
import { type Attempt, JobId } from "../../model/ids.js";
import { fields, integer, list, unexpectedValue } from "../../model/input.js";
import type { Bytes, Resources } from "../../model/recipe.js";

// Both ends check all of these: a sender before it sends, a receiver before it uses a value.

/** Bytes of one frame. */
export const FRAME_LIMIT = 64 * 1024 * 1024;
export const MESSAGES_LIMIT = 65_535;
/** Values of any kind in one frame: a byte on the wire can cost fifty in memory. */
export const VALUES_LIMIT = 2 * 1024 * 1024;
/** Arrays and maps inside each other, the frame itself counted. */
export const DEPTH_LIMIT = 64;
/** Rows of one list: the tasks of a DONE, the entries of a TASKS. */
export const ROWS_LIMIT = 100_000;
/** Bytes of a name: of a worker, a service, a pool, a tag. */
export const NAME_LIMIT = 1024;
/** Names in one list, amounts in one map. */
export const NAMES_LIMIT = 1024;
/** Characters of a text for a person. A longer one is cut by its sender. */
export const TEXT_LIMIT = 16 * 1024;
/** Milliseconds between two HEARTBEATs: beyond a day a timer is a mistake. */
export const HEARTBEAT_LIMIT = 86_400_000;
/** Characters of a worker's secret. A shorter one could be guessed. */
export const SHORTEST_SECRET = 32;

export type Row = readonly unknown[];

/** One message or row: how it is written, and how it is read back. Fields that follow the known ones are ignored. */
export interface MessageCodec<Message> {
  readonly number: number;
  readonly write: (message: Message) => Row;
  readonly read: (row: Row) => Message;
}

export const count = (value: unknown, what: string): number => integer(value, what, 0, Number.MAX_SAFE_INTEGER);

export const jobId = (value: unknown): JobId => JobId(count(value, "job"));
export const attemptOf = (value: unknown): Attempt => integer(value, "attempt", 1, Number.MAX_SAFE_INTEGER);

/** Milliseconds or another amount; it may have a fraction. */
export function amount(value: unknown, what: string): number {
  if (typeof value === "number" && value >= 0 && value < Number.POSITIVE_INFINITY) return value;
  throw unexpectedValue(what, "a number of 0 or more", value);
}

export function name(value: unknown, what: string): string {
  // A character has at most three bytes for each of its UTF-16 units.
  const fits = (text: string): boolean => text.length * 3 <= NAME_LIMIT || Buffer.byteLength(text) <= NAME_LIMIT;
  if (typeof value === "string" && value.length > 0 && fits(value)) return value;
  throw unexpectedValue(what, `a name of 1 to ${NAME_LIMIT} bytes`, value);
}

export function text(value: unknown, what: string): string {
  if (typeof value === "string" && value.length <= TEXT_LIMIT) return value;
  throw unexpectedValue(what, `a text of at most ${TEXT_LIMIT} characters`, value);
}

export function body(value: unknown, what: string): Uint8Array {
  if (value instanceof Uint8Array) return value;
  throw unexpectedValue(what, "bytes", value);
}

export function textOrBytes(value: unknown, what: string): Bytes {
  if (typeof value === "string" || value instanceof Uint8Array) return value;
  throw unexpectedValue(what, "text or bytes", value);
}

export function rows<Item>(value: unknown, what: string, read: (row: Row) => Item): Item[] {
  return list(value, what, ROWS_LIMIT, (row, where) => {
    if (!Array.isArray(row)) throw unexpectedValue(where, "a row", row);
    return read(row);
  });
}

export const names = (value: unknown, what: string): string[] => list(value, what, NAMES_LIMIT, name);

export function amounts(value: unknown, what: string): Resources {
  const found: Record<string, number> = {};
  const entries = Object.entries(fields(value, what));
  if (entries.length > NAMES_LIMIT) throw unexpectedValue(what, `at most ${NAMES_LIMIT} amounts`, entries.length);
  for (const [key, held] of entries) found[name(key, what)] = amount(held, what);
  const { slots } = found;
  if (slots === undefined) throw unexpectedValue(what, "amounts with slots", value);
  return { ...found, slots };
}

export const isErrorCode = (text: string): text is ErrorCode => Object.hasOwn(ERROR_CODES, text);

export function errorCode(value: unknown, what: string): ErrorCode {
  if (typeof value === "string" && isErrorCode(value)) return value;
  throw unexpectedValue(what, "a LABORO_ code", value);
}

/** Words that travel as their position in a list which only ever grows. */
export function enumValue<Word extends string>(value: unknown, what: string, words: readonly Word[]): Word {
  const found = typeof value === "number" ? words[value] : undefined;
  if (found === undefined) throw unexpectedValue(what, `a number for one of ${words.join(", ")}`, value);
  return found;
}

/** A text for a person, cut to what the other end takes: a long error must not cost the link. */
export function clipped(value: string): string {
  const short = value.length > TEXT_LIMIT ? `${value.slice(0, TEXT_LIMIT - 1)}…` : value;
  // Half a surrogate pair is no UTF-8; a Buffer replaces it.
  return /[\ud800-\udfff]/.test(short) ? Buffer.from(short).toString() : short;
}
