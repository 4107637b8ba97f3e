/** Columns of values as arrays in PostgreSQL's own text form, and task ranges as multiranges. */
import type { Range, Ranges } from "../../model/ranges.js";

export const numberArray = (list: readonly (number | null)[]): string =>
  `{${list.map((one) => one ?? "NULL").join(",")}}`;

export const booleanArray = (list: readonly (boolean | null)[]): string =>
  `{${list.map((one) => (one === null ? "NULL" : one ? "t" : "f")).join(",")}}`;

export const textArray = (list: readonly (string | null)[]): string =>
  `{${list.map((one) => (one === null ? "NULL" : `"${validText(one).replace(/["\\]/g, "\\$&")}"`)).join(",")}}`;

/** PostgreSQL's text allows no NUL, and UTF-8 no lone surrogate. */
export const validText = (text: string): string => text.replaceAll("\0", "\ufffd").replace(/\p{Surrogate}/gu, "\ufffd");

/** The last number that a range of PostgreSQL's integers can end with. */
const MAX_INDEX = 2 ** 31 - 2;

export const multirange = (ranges: Iterable<Range>): string => {
  const parts: string[] = [];
  for (const range of ranges) {
    const [first, last] = [Math.max(0, range.first), Math.min(MAX_INDEX, range.last)];
    if (last >= first) parts.push(`[${first},${last + 1})`);
  }
  return `{${parts.join(",")}}`;
};

export function rangesFrom(text: string | null): Ranges {
  const ranges: Range[] = [];
  for (const [, first, end] of (text ?? "").matchAll(/\[(-?\d+),(-?\d+)\)/g)) {
    ranges.push({ first: Number(first), last: Number(end) - 1 });
  }
  return ranges;
}

/** Many byte strings as one parameter, with the start (from 1, as PostgreSQL counts) and length of each. */
export class ConcatenatedBytes {
  readonly #parts: Uint8Array[] = [];
  readonly starts: number[] = [];
  readonly lengths: number[] = [];
  #size = 0;

  add(bytes: Uint8Array): { readonly start: number; readonly length: number } {
    const start = this.#size + 1;
    const { length } = bytes;
    this.#parts.push(bytes);
    this.starts.push(start);
    this.lengths.push(length);
    this.#size += length;
    return { start, length };
  }

  /** A copy. */
  get bytes(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}
