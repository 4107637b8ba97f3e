/**
 * Integers from 0 to 2^53 - 1 in 1 to 8 bytes: seven bits per byte, lowest first, the top bit set in all but the last.
 */
import { LaboroError } from "../errors.js";

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
