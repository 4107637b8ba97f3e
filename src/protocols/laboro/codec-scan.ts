/**
 * Walks msgpack bytes without building anything, so that nothing is allocated for what a peer only claims: every length lies
 * within the bytes that came, nesting and the number of values are bounded, strings are UTF-8, map keys are strings,
 * integers are safe, and there are no extension types. What passes is safe for a lenient decoder.
 */
import { isUtf8 } from "node:buffer";
import { badMessage } from "../../base/errors.js";

export interface ScanLimits {
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
    if (lacking.length + 1 >= limits.depth) throw badMessage(`lists lie more than ${limits.depth} deep in each other`);
    lacking.push(left);
    maps.push(inMap);
    left = claimed;
    inMap = kind === Kind.map;
  }
}

const Kind = { plain: 0, string: 1, bytes: 2, array: 3, map: 4, refused: 5 } as const;

const isString = (token: number): boolean => (token >= 0xa0 && token < 0xc0) || (token >= 0xd9 && token <= 0xdb);

/** What a token from 0x80 to 0xdf stands for. */
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
