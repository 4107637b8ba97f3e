/** The set of a job's tasks whose end is known. A task that runs again ends again, with a higher attempt. */
import type { Attempt, TaskIndex } from "./ids.js";
import { contains, firstEndingAtOrAfter, type Ranges } from "./ranges.js";

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
