/**
 * Limits of a frame, and readers of message fields besides those of model/input.ts. They throw LABORO_BAD_INPUT with
 * the expected form and the value; decodeFrame turns it into LABORO_BAD_MESSAGE.
 */
import { isUtf8 } from "node:buffer";
import { badMessage, ERROR_CODES, type ErrorCode } from "../../base/errors.js";
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
const TEXT_LIMIT = 16 * 1024;
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

/** A word, sent as its position in a list that only grows. */
export function enumValue<Word extends string>(value: unknown, what: string, words: readonly Word[]): Word {
  const found = typeof value === "number" ? words[value] : undefined;
  if (found === undefined) throw unexpectedValue(what, `a number for one of ${words.join(", ")}`, value);
  return found;
}

/** A text for people, cut to the length that the other end accepts: a long error must not close the link. */
export function clipped(value: string): string {
  const short = value.length > TEXT_LIMIT ? `${value.slice(0, TEXT_LIMIT - 1)}…` : value;
  // Half a surrogate pair is no UTF-8; a Buffer replaces it.
  return /[\ud800-\udfff]/.test(short) ? Buffer.from(short).toString() : short;
}

/**
 * Checks msgpack bytes without building values, so that nothing is allocated for lengths that a peer only claims: every
 * length is within the received bytes, nesting and the number of values are bounded, strings are UTF-8, map keys are
 * strings, integers are safe, and there are no extension types. Accepted bytes are safe for a lenient decoder.
 */
interface ScanLimits {
  readonly depth: number;
  readonly values: number;
}

/** Throws LABORO_BAD_MESSAGE unless the bytes are one whole value. */
export function scan(bytes: Uint8Array, limits: ScanLimits): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = bytes.length;
  /** For each container that is open: how many values it still lacks, and whether it is a map. */
  const lacking: number[] = [];
  const maps: boolean[] = [];
  let left = 1;
  let inMap = false;
  let values = 0;
  let at = 0;

  for (;;) {
    while (left === 0) {
      if (lacking.length === 0) {
        if (at !== end) throw badMessage(`${end - at} bytes follow the end of the frame`);
        return;
      }
      left = lacking.pop() ?? 0;
      inMap = maps.pop() ?? false;
    }
    if (at >= end) throw badMessage(`the frame ends at byte ${end}, in the middle of a value`);
    if (++values > limits.values) throw badMessage(`the frame holds more than ${limits.values} values`);
    const token = view.getUint8(at++);
    const isKey = inMap && (left & 1) === 0;
    left--;
    if (isKey && !isString(token)) throw badMessage(`a map key at byte ${at - 1} is not a string`);
    // Small integers are most of what there is.
    if (token < 0x80 || token >= 0xe0) continue;

    const head = headSize(token);
    if (head > end - at) throw badMessage(`the frame ends at byte ${end}, in the middle of a value`);
    const kind = kindOf(token);
    if (kind === Kind.plain) {
      if (token === 0xcf || token === 0xd3) checkInt64(view, at, token === 0xd3);
      at += head;
      continue;
    }
    if (kind === Kind.refused)
      throw badMessage(`byte ${at - 1} is 0x${token.toString(16)}, a type that the link does not use`);

    const length = lengthOf(view, token, at, head);
    at += head;
    if (kind === Kind.bytes || kind === Kind.string) {
      if (length > end - at) throw badMessage(`a string claims ${length} bytes, ${end - at} are left`);
      if (kind === Kind.string) checkText(bytes, at, at + length);
      at += length;
      continue;
    }
    const claimed = kind === Kind.map ? length * 2 : length;
    // A value takes a byte at least.
    if (claimed > end - at) throw badMessage(`a list claims ${claimed} values, ${end - at} bytes are left`);
    if (lacking.length + 1 >= limits.depth) throw badMessage(`lists are nested more than ${limits.depth} deep`);
    lacking.push(left);
    maps.push(inMap);
    left = claimed;
    inMap = kind === Kind.map;
  }
}

const Kind = { plain: 0, string: 1, bytes: 2, array: 3, map: 4, refused: 5 } as const;

const isString = (token: number): boolean => (token >= 0xa0 && token < 0xc0) || (token >= 0xd9 && token <= 0xdb);

/** The kind and length of a token from 0x80 to 0xdf. */
function kindOf(token: number): number {
  if (token < 0x90) return Kind.map;
  if (token < 0xa0) return Kind.array;
  if (isString(token)) return Kind.string;
  if (token >= 0xc4 && token <= 0xc6) return Kind.bytes;
  if (token === 0xdc || token === 0xdd) return Kind.array;
  if (token === 0xde || token === 0xdf) return Kind.map;
  if (token === 0xc1 || (token >= 0xc7 && token <= 0xc9) || (token >= 0xd4 && token <= 0xd8)) return Kind.refused;
  return Kind.plain;
}

/** From 0xc0 on: the bytes after the token that hold the number itself, or the length of what follows. */
const HEADS = [0, 0, 0, 0, 1, 2, 4, 0, 0, 0, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4] as const;

const headSize = (token: number): number => (token < 0xc0 ? 0 : (HEADS[token - 0xc0] ?? 0));

function lengthOf(view: DataView, token: number, at: number, head: number): number {
  if (head === 1) return view.getUint8(at);
  if (head === 2) return view.getUint16(at);
  if (head === 4) return view.getUint32(at);
  return token < 0xa0 ? token & 0x0f : token & 0x1f;
}

function checkInt64(view: DataView, at: number, signed: boolean): void {
  const value = signed ? view.getBigInt64(at) : view.getBigUint64(at);
  if (value > Number.MAX_SAFE_INTEGER || value < Number.MIN_SAFE_INTEGER) {
    throw badMessage(`the integer ${value} is beyond 2^53`);
  }
}

function checkText(bytes: Uint8Array, from: number, to: number): void {
  // A call into native code costs more than looking at a short name.
  if (to - from <= 48) {
    let at = from;
    while (at < to && (bytes[at] ?? 0) < 0x80) at++;
    if (at === to) return;
  }
  if (!isUtf8(bytes.subarray(from, to))) throw badMessage(`a string at byte ${from} is not UTF-8`);
}
