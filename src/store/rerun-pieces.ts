/** How tasks that run again are divided into parcels; the same for every engine. */
import { type Attempt, type JobId, ParcelId } from "../model/ids.js";
import type { Range } from "../model/ranges.js";
import type { Parcel } from "../model/store.js";

/** Neighbours with the same attempt. */
export interface Run extends Range {
  readonly attempt: Attempt;
}

/** Disjoint runs in any order, made as few and as long as they can be, in task order. */
export function joinRuns(runs: readonly Run[]): Run[] {
  const joined: Run[] = [];
  for (const run of runs.toSorted((a, b) => a.first - b.first)) {
    const before = joined.at(-1);
    if (before?.attempt === run.attempt && before.last + 1 === run.first) {
      joined[joined.length - 1] = { ...before, last: run.last };
    } else joined.push(run);
  }
  return joined;
}

/** Waiting, with nothing held against them, under the names from `first` on. */
export const piecesOf = (runs: readonly Run[], job: JobId, first: ParcelId): Parcel[] =>
  runs.map((run, at) => ({ ...run, id: ParcelId(first + at), job, failures: 0, crashes: 0, notBefore: 0 }));

export const tooManyPieces = (pieces: number, names: number): string =>
  `the tasks that would run again lie in ${pieces} separate stretches, which is more than the ${names} that one request may have: give fewer ranges`;
