/**
 * An append-only file of checksummed records. All numbers are little-endian.
 *   magic    4 bytes  c5 4c 42 72, which no UTF-8 text contains
 *   length   u32      bytes of payload
 *   checksum u32      CRC-32 over the length and the payload
 *   payload
 * A scan reads the file in bounded chunks. After a damaged record it first tries the position after its stated length,
 * then the next magic with a correct checksum. So a flipped bit loses one record. Skipped bytes are reported once per
 * gap. The good data ends with the last good record. A writer truncates the file there before it appends, so that a
 * record that was cut off by a crash is never followed by a good one.
 * A payload may itself contain a complete record. It counts as a record only if its enclosing record is damaged.
 *
 * Integers from 0 to 2^53 - 1 in 1 to 8 bytes: seven bits per byte, lowest first, the top bit set in all but the last.
 */
import * as fs from "node:fs";
import * as zlib from "node:zlib";
import { LaboroError } from "../errors.js";
import { readFully } from "./durable.js";

/** The CRC-32 of bytes[from, to), continued from `before`. */
const crc32 = (bytes: Uint8Array, from: number, to: number, before = 0): number =>
  zlib.crc32(bytes.subarray(from, to), before);

export const RECORD_HEADER = 12;
const RECORD_MAGIC = 0x72424cc5;
const DEFAULT_MAX_PAYLOAD = 64 * 1024 * 1024;

type DamageReason = "cut off" | "bad checksum" | "bad length" | "no record";

export interface Damage {
  readonly at: number;
  readonly bytes: number;
  readonly reason: DamageReason;
}

/** Writes the header of a record whose payload is already at `at + RECORD_HEADER`. Returns the end of the record. */
export function writeRecordHeader(buffer: Buffer, at: number, length: number): number {
  const payload = at + RECORD_HEADER;
  buffer.writeUInt32LE(RECORD_MAGIC, at);
  buffer.writeUInt32LE(length, at + 4);
  buffer.writeUInt32LE(crc32(buffer, payload, payload + length, crc32(buffer, at + 4, at + 8)), at + 8);
  return payload + length;
}

/** One buffer with a record for each payload, so that many are written at once. */
export function encodeRecords(payloads: readonly Uint8Array[]): Buffer {
  let size = 0;
  for (const payload of payloads) size += RECORD_HEADER + payload.length;
  const buffer = Buffer.allocUnsafe(size);
  let at = 0;
  for (const payload of payloads) {
    buffer.set(payload, at + RECORD_HEADER);
    at = writeRecordHeader(buffer, at, payload.length);
  }
  return buffer;
}

/**
 * A scan keeps one bounded buffer of the file in memory. The checksum of a larger record is computed piece by piece,
 * and the record is loaded only if it is good. So a wrong length never costs memory.
 */
const WINDOW = 256 * 1024;
const MAGIC_BYTES = Buffer.alloc(4);
MAGIC_BYTES.writeUInt32LE(RECORD_MAGIC);

type RecordCheck =
  | { readonly good: true; readonly length: number }
  /** `length` is the length in the header. */
  | { readonly good: false; readonly length: number; readonly reason: DamageReason };

const bad = (reason: DamageReason, length = 0): RecordCheck => ({ good: false, length, reason });

class RecordWindow {
  readonly #fd: number;
  readonly #size: number;
  readonly #maxPayload: number;
  readonly #buffer: Buffer;
  #start = 0;
  #filled = 0;

  constructor(fd: number, size: number, maxPayload: number, expected: number) {
    this.#fd = fd;
    this.#size = size;
    this.#maxPayload = maxPayload;
    this.#buffer = Buffer.allocUnsafe(Math.min(WINDOW, Math.max(expected, RECORD_HEADER)));
  }

  check(at: number): RecordCheck {
    const left = this.#size - at;
    const head = this.#locate(at, Math.min(left, RECORD_HEADER));
    if (head < 0) return bad("cut off");
    const seen = Math.min(4, left);
    if (this.#buffer.compare(MAGIC_BYTES, 0, seen, head, head + seen) !== 0) return bad("no record");
    if (left < RECORD_HEADER) return bad("cut off");
    const length = this.#buffer.readUInt32LE(head + 4);
    const checksum = this.#buffer.readUInt32LE(head + 8);
    const before = crc32(this.#buffer, head + 4, head + 8);
    if (length > this.#maxPayload) return bad("bad length");
    if (RECORD_HEADER + length > left) return bad("cut off");
    return this.#checksum(at + RECORD_HEADER, length, before) === checksum
      ? { good: true, length }
      : bad("bad checksum", length);
  }

  /** The payload of a record that was found good. */
  payload(at: number, length: number): Buffer {
    const from = at + RECORD_HEADER;
    if (length <= this.#buffer.length) {
      const index = this.#locate(from, length);
      return this.#buffer.subarray(index, index + length);
    }
    const whole = Buffer.allocUnsafe(length);
    readFully(this.#fd, whole, from);
    return whole;
  }

  /** The position of the next magic, complete or cut off by the end; the end if there is none. */
  findMagic(from: number): number {
    let at = from;
    while (at < this.#size) {
      const index = this.#locate(at, Math.min(this.#size - at, MAGIC_BYTES.length));
      if (index < 0) return this.#size;
      const hit = this.#buffer.subarray(0, this.#filled).indexOf(MAGIC_BYTES, index);
      if (hit >= 0) return this.#start + hit;
      const next = this.#start + this.#filled - (MAGIC_BYTES.length - 1);
      if (next <= at) return this.#size;
      at = next;
    }
    return this.#size;
  }

  #checksum(from: number, length: number, before: number): number {
    let crc = before;
    let at = from;
    const end = from + length;
    while (at < end) {
      const step = Math.min(end - at, this.#buffer.length);
      const index = this.#locate(at, step);
      if (index < 0) return -1;
      crc = crc32(this.#buffer, index, index + step, crc);
      at += step;
    }
    return crc;
  }

  /** The index of these bytes in the buffer, or -1 if the file does not have them any more. */
  #locate(at: number, length: number): number {
    if (at < this.#start || at + length > this.#start + this.#filled) {
      const wanted = Math.min(this.#buffer.length, this.#size - at);
      this.#start = at;
      this.#filled = readFully(this.#fd, this.#buffer.subarray(0, wanted), at);
    }
    return at + length <= this.#start + this.#filled ? at - this.#start : -1;
  }
}

interface ScanVisitor {
  /** The payload is valid only during the call. Returning false ends the scan. */
  record(at: number, payload: Buffer): boolean | undefined;
  damage?(damage: Damage): void;
}

export interface ScanOptions {
  readonly from?: number;
  readonly to?: number;
  /** A larger length counts as damage. */
  readonly maxPayload?: number;
}

interface ScanEnd {
  /** The end of the last good record; `from` if there was none. */
  readonly goodEnd: number;
  /** The end of the scan: `to`, or the size of the file. */
  readonly size: number;
}

export function scanRecords(fd: number, visitor: ScanVisitor, options: ScanOptions = {}): ScanEnd {
  const from = options.from ?? 0;
  const size = Math.max(from, Math.min(options.to ?? Number.POSITIVE_INFINITY, fs.fstatSync(fd).size));
  const window = new RecordWindow(fd, size, options.maxPayload ?? DEFAULT_MAX_PAYLOAD, size - from);
  let at = from;
  let goodEnd = from;
  let skippedFrom = -1;
  let reason: DamageReason = "no record";

  while (at < size) {
    const found = window.check(at);
    if (found.good) {
      if (skippedFrom >= 0) {
        // Good records follow, so the record was not cut off: its length is wrong.
        if (reason === "cut off") reason = "bad length";
        visitor.damage?.({ at: skippedFrom, bytes: at - skippedFrom, reason });
        skippedFrom = -1;
      }
      goodEnd = at + RECORD_HEADER + found.length;
      if (visitor.record(at, window.payload(at, found.length)) === false) return { goodEnd, size };
      at = goodEnd;
      continue;
    }
    if (skippedFrom < 0) {
      skippedFrom = at;
      reason = found.reason;
      if (reason === "bad checksum") {
        const next = at + RECORD_HEADER + found.length;
        if (next === size || window.check(next).good) {
          at = next;
          continue;
        }
      }
    }
    at = window.findMagic(at + 1);
  }
  if (skippedFrom >= 0) visitor.damage?.({ at: skippedFrom, bytes: size - skippedFrom, reason });
  return { goodEnd, size };
}

export function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size++;
  return size;
}

/** Writes the number at `at` and returns the position after it. */
export function writeVarint(bytes: Uint8Array, at: number, value: number): number {
  let rest = value;
  let next = at;
  while (rest >= 128) {
    bytes[next++] = (rest % 128) | 128;
    rest = Math.floor(rest / 128);
  }
  bytes[next++] = rest;
  return next;
}

export function encodeVarints(values: readonly number[]): Uint8Array {
  let size = 0;
  for (const value of values) size += varintSize(value);
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const value of values) at = writeVarint(bytes, at, value);
  return bytes;
}

/** Reads one number after the other. Throws LABORO_DATA_CORRUPT if the bytes end too early or a number is too long. */
export class VarintReader {
  at: number;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array, at = 0) {
    this.#bytes = bytes;
    this.at = at;
  }

  get done(): boolean {
    return this.at >= this.#bytes.length;
  }

  next(): number {
    let value = 0;
    for (let unit = 1; unit <= 128 ** 7; unit *= 128) {
      const byte = this.#bytes[this.at++];
      if (byte === undefined) throw new LaboroError("LABORO_DATA_CORRUPT", "a number is cut off");
      value += (byte & 127) * unit;
      if (byte < 128) {
        if (Number.isSafeInteger(value)) return value;
        break;
      }
    }
    throw new LaboroError("LABORO_DATA_CORRUPT", "a number is longer than any that was written");
  }
}
