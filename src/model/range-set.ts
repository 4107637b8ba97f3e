/** A set of task indices that grows, kept as ranges: sorted, disjoint and merged. */
import { contains, firstEndingAtOrAfter, type Ranges } from "./ranges.js";

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
    // Indices mostly come in order: the range before is often the last one.
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
