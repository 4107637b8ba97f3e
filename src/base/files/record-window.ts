/**
 * The part of a record file that a scan has in memory: one bounded buffer that is moved along. A record larger than the
 * buffer has its checksum taken piece by piece, and is loaded whole only once it is known to be good; a wrong length
 * therefore costs reading, never memory.
 */
import { crc32 } from "./crc32.js";
import { readFully } from "./durable.js";
import { type DamageReason, RECORD_HEADER, RECORD_MAGIC } from "./record-format.js";

const WINDOW = 256 * 1024;
const MAGIC_BYTES = Buffer.alloc(4);
MAGIC_BYTES.writeUInt32LE(RECORD_MAGIC);

export type RecordCheck =
  | { readonly good: true; readonly length: number }
  /** The length is the one that the header states. */
  | { readonly good: false; readonly length: number; readonly reason: DamageReason };

const bad = (reason: DamageReason, length = 0): RecordCheck => ({ good: false, length, reason });

export class RecordWindow {
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

  /** Where the next magic begins, whole or cut by the end; the end where there is none. */
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

  /** The index in the buffer of these bytes of the file, or -1 where the file no longer has them. */
  #locate(at: number, length: number): number {
    if (at < this.#start || at + length > this.#start + this.#filled) {
      const wanted = Math.min(this.#buffer.length, this.#size - at);
      this.#start = at;
      this.#filled = readFully(this.#fd, this.#buffer.subarray(0, wanted), at);
    }
    return at + length <= this.#start + this.#filled ? at - this.#start : -1;
  }
}
