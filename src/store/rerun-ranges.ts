/** How tasks that run again are divided into parcels; the same for every engine. */
import { type Attempt, type JobId, TaskRangeId } from "../model/ids.js";
import type { Range } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";

/** Neighbours with the same attempt. */
export interface AttemptRun extends Range {
  readonly attempt: Attempt;
}

/** Disjoint runs in any order, made as few and as long as they can be, in task order. */
export function joinRuns(runs: readonly AttemptRun[]): AttemptRun[] {
  const joined: AttemptRun[] = [];
  for (const run of runs.toSorted((a, b) => a.first - b.first)) {
    const before = joined.at(-1);
    if (before?.attempt === run.attempt && before.last + 1 === run.first) {
      joined[joined.length - 1] = { ...before, last: run.last };
    } else joined.push(run);
  }
  return joined;
}

/** Waiting, with nothing held against them, under the names from `first` on. */
export const taskRangesFromRuns = (runs: readonly AttemptRun[], job: JobId, first: TaskRangeId): TaskRange[] =>
  runs.map((run, at) => ({ ...run, id: TaskRangeId(first + at), job, failures: 0, crashes: 0, notBefore: 0 }));

export const tooManyRanges = (count: number, max: number): string =>
  `the tasks that would run again lie in ${count} separate stretches, which is more than the ${max} that one request may have: give fewer ranges`;
