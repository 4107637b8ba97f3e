/** Ranges of task indices, and the set of a job's tasks whose end is known. */
import type { Attempt, TaskIndex } from "./ids.js";

/** Ranges of task indices, both ends included. Lists are sorted, disjoint and merged: neighbours cost one pair. */
export interface Range {
  readonly first: number;
  readonly last: number;
}

export type Ranges = readonly Range[];

export const NO_RANGES: Ranges = [];

/** The tasks of any job. */
export const ALL_TASKS: Range = { first: 0, last: 2 ** 31 - 2 };

export const sizeOf = (range: Range): number => range.last - range.first + 1;

export function countOf(ranges: Ranges): number {
  let count = 0;
  for (const range of ranges) count += sizeOf(range);
  return count;
}

/** Sorts and merges ranges. */
export function normalize(ranges: Iterable<Range>): Ranges {
  const sorted = [...ranges].filter((range) => range.last >= range.first).sort((a, b) => a.first - b.first);
  const merged: Range[] = [];
  for (const range of sorted) {
    const before = merged.at(-1);
    if (before !== undefined && range.first <= before.last + 1) {
      merged[merged.length - 1] = { first: before.first, last: Math.max(before.last, range.last) };
    } else {
      merged.push({ first: range.first, last: range.last });
    }
  }
  return merged;
}

export const union = (a: Ranges, b: Ranges): Ranges => (b.length === 0 ? a : normalize([...a, ...b]));

/** The parts of `range` that are in `ranges`. */
export function intersection(range: Range, ranges: Ranges): Ranges {
  const found: Range[] = [];
  for (let i = firstEndingAtOrAfter(ranges, range.first); i < ranges.length; i++) {
    const other = ranges[i];
    if (other === undefined || other.first > range.last) break;
    found.push({ first: Math.max(range.first, other.first), last: Math.min(range.last, other.last) });
  }
  return found;
}

/** The parts of `range` that are not in `ranges`. */
export function difference(range: Range, ranges: Ranges): Ranges {
  const left: Range[] = [];
  let next = range.first;
  for (const hit of intersection(range, ranges)) {
    if (hit.first > next) left.push({ first: next, last: hit.first - 1 });
    next = hit.last + 1;
  }
  if (next <= range.last) left.push({ first: next, last: range.last });
  return left;
}

/** The first `count` tasks of these ranges. */
export function firstOf(ranges: Ranges, count: number): Ranges {
  let left = count;
  return ranges.flatMap(({ first, last }) => {
    const taken = Math.min(left, last - first + 1);
    left -= taken;
    return taken > 0 ? [{ first, last: first + taken - 1 }] : [];
  });
}

export function contains(ranges: Ranges, index: number): boolean {
  const range = ranges[firstEndingAtOrAfter(ranges, index)];
  return range !== undefined && range.first <= index;
}

/** Runs of consecutive numbers among sorted indices. */
export function rangesOf(sortedIndices: Iterable<number>): Ranges {
  const found: { first: number; last: number }[] = [];
  for (const index of sortedIndices) {
    const run = found.at(-1);
    if (run !== undefined && index === run.last + 1) run.last = index;
    else found.push({ first: index, last: index });
  }
  return found;
}

/** The position of the first of these sorted, disjoint ranges that ends at `index` or later. */
export function firstEndingAtOrAfter(ranges: Ranges, index: number): number {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const range = ranges[middle];
    if (range !== undefined && range.last < index) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A growing set of task indices, stored as sorted, disjoint and merged ranges. */
export class RangeSet {
  readonly #ranges: { first: number; last: number }[];

  constructor(ranges: Ranges = []) {
    this.#ranges = ranges.map(({ first, last }) => ({ first, last }));
  }

  get ranges(): Ranges {
    return this.#ranges;
  }

  has(index: number): boolean {
    return contains(this.#ranges, index);
  }

  /** The first index from `from` on that is not in the set. */
  firstMissing(from: number): number {
    const range = this.#ranges[firstEndingAtOrAfter(this.#ranges, from)];
    return range === undefined || range.first > from ? from : range.last + 1;
  }

  add(index: number): void {
    const ranges = this.#ranges;
    // Indices mostly come in order, so the last range is checked first.
    const last = ranges.at(-1);
    const at = last !== undefined && last.last < index - 1 ? ranges.length : firstEndingAtOrAfter(ranges, index - 1);
    const range = ranges[at];
    if (range === undefined || range.first > index + 1) ranges.splice(at, 0, { first: index, last: index });
    else if (index === range.first - 1) range.first = index;
    else if (index === range.last + 1) {
      range.last = index;
      const next = ranges[at + 1];
      if (next?.first !== index + 1) return;
      range.last = next.last;
      ranges.splice(at + 1, 1);
    }
  }
}

interface TaskAttempt {
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

/** The tasks of a job whose end is known. A task that runs again ends again, with a higher attempt. */
export class EndedTasks {
  readonly #indices: RangeSet;
  /** Only attempts after the first. */
  readonly #attempts = new Map<TaskIndex, Attempt>();

  constructor(ranges: Ranges = []) {
    this.#indices = new RangeSet(ranges);
  }

  get ranges(): Ranges {
    return this.#indices.ranges;
  }

  firstMissing(from: TaskIndex): TaskIndex {
    return this.#indices.firstMissing(from);
  }

  has({ index, attempt }: TaskAttempt): boolean {
    return this.#indices.has(index) && attempt <= (this.#attempts.get(index) ?? 1);
  }

  add({ index, attempt }: TaskAttempt): void {
    this.#indices.add(index);
    if (attempt > 1) this.#attempts.set(index, attempt);
  }
}
