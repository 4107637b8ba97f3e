/**
 * Writes msgpack as the original's library does: the smallest form of each integer, of each length, maps in the order of their fields.
 * Written here because those bytes are the protocol's, and a general packer may choose others.
 */
import type { Bytes } from "../../model/recipe.js";

export class MsgpackWriter {
  #buffer = Buffer.allocUnsafe(256);
  #length = 0;

  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  nil(): void {
    this.#byte(0xc0);
  }

  flag(value: boolean): void {
    this.#byte(value ? 0xc3 : 0xc2);
  }

  integer(value: number): void {
    if (value >= 0) {
      if (value < 0x80) this.#byte(value);
      else if (value < 0x100) this.#number(0xcc, value, 1);
      else if (value < 0x1_0000) this.#number(0xcd, value, 2);
      else if (value < 0x1_0000_0000) this.#number(0xce, value, 4);
      else this.#long(0xcf, value);
    } else if (value >= -0x20) this.#byte(value & 0xff);
    else if (value >= -0x80) this.#number(0xd0, value + 0x100, 1);
    else if (value >= -0x8000) this.#number(0xd1, value + 0x1_0000, 2);
    else if (value >= -0x8000_0000) this.#number(0xd2, value + 0x1_0000_0000, 4);
    else this.#long(0xd3, value);
  }

  text(value: Bytes): void {
    const bytes = typeof value === "string" ? Buffer.from(value) : value;
    const { length } = bytes;
    if (length < 0x20) this.#byte(0xa0 | length);
    else if (length < 0x100) this.#number(0xd9, length, 1);
    else if (length < 0x1_0000) this.#number(0xda, length, 2);
    else this.#number(0xdb, length, 4);
    this.#reserve(length);
    this.#buffer.set(bytes, this.#length);
    this.#length += length;
  }

  list<T>(items: readonly T[], item: (one: T) => void): void {
    const { length } = items;
    if (length < 0x10) this.#byte(0x90 | length);
    else if (length < 0x1_0000) this.#number(0xdc, length, 2);
    else this.#number(0xdd, length, 4);
    for (const one of items) item(one);
  }

  /** The head of a map of at most 15 fields; each is a `text` and its value. */
  map(fields: number): void {
    this.#byte(0x80 | fields);
  }

  #byte(value: number): void {
    this.#reserve(1);
    this.#buffer[this.#length++] = value;
  }

  #number(token: number, value: number, width: number): void {
    this.#byte(token);
    this.#reserve(width);
    this.#length = this.#buffer.writeUIntBE(value, this.#length, width);
  }

  #long(token: number, value: number): void {
    this.#byte(token);
    this.#reserve(8);
    const whole = BigInt(value);
    this.#length = this.#buffer.writeBigUInt64BE(BigInt.asUintN(64, whole), this.#length);
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#buffer.length) return;
    const wider = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
    this.#buffer.copy(wider, 0, 0, this.#length);
    this.#buffer = wider;
  }
}
