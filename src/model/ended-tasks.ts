/** Which ends of a job's tasks are known. A task that is run again ends again, with a higher attempt. */
import type { Attempt, TaskIndex } from "./ids.js";
import { RangeSet } from "./range-set.js";
import type { Ranges } from "./ranges.js";

interface TaskAttempt {
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

export class EndedTasks {
  readonly #indices: RangeSet;
  /** Where it is not the first. */
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
