/** Task ranges as rows, and how tasks that run again are divided into them; the same for both engines. */
import { type Attempt, type JobId, TaskRangeId, type WorkerId } from "../model/ids.js";
import { contains, difference, intersection, normalize, type Range, type Ranges, union } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";

export interface TaskRangeRow {
  readonly id: TaskRangeId;
  readonly job: JobId;
  readonly first: number;
  readonly last: number;
  readonly attempt: number;
  readonly failures: number;
  readonly crashes: number;
  readonly notBefore: number;
  readonly waitMs: number | null;
  readonly avoid: WorkerId | null;
  readonly worker: WorkerId | null;
}

/** A row may have more columns than these. */
export function taskRangeFrom(row: TaskRangeRow): TaskRange {
  const { id, job, first, last, attempt, failures, crashes, notBefore, waitMs, avoid, worker } = row;
  const known = { id, job, first, last, attempt, failures, crashes, notBefore };
  const wait = waitMs === null ? {} : { waitMs };
  return { ...known, ...wait, ...(avoid === null ? {} : { avoid }), ...(worker === null ? {} : { worker }) };
}

/** Neighbours with the same attempt. */
export interface AttemptRun extends Range {
  readonly attempt: Attempt;
}

/** Joins neighbouring runs. Takes disjoint runs in any order and returns them in task order. */
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

/** The ranges of tasks that may run again: granted once, requested, and in no task range (`held`). */
export function rerunCandidates(requested: Ranges | undefined, cursor: number, held: Ranges): Ranges {
  const granted = { first: 0, last: cursor - 1 };
  const ranges = requested === undefined ? normalize([granted]) : intersection(granted, normalize(requested));
  return normalize(ranges.flatMap((range) => difference(range, held)));
}

/** Divides tasks without a result by their last stored attempt, because an attempt number is not used twice. */
export function runsByAttempt(
  ranges: Ranges,
  stored: readonly { readonly index: number; readonly attempt: Attempt }[],
): AttemptRun[] {
  const last = new Map<number, Attempt>();
  for (const { index, attempt } of stored)
    if (contains(ranges, index)) last.set(index, Math.max(attempt, last.get(index) ?? 0));
  const tried = [...last].map(([index, attempt]) => ({ first: index, last: index, attempt }));
  const triedRanges = normalize(tried);
  const others = ranges.flatMap((range) => difference(range, triedRanges));
  return [...tried, ...others.map((range) => ({ ...range, attempt: 0 }))];
}

/** Waiting, without failures and crashes, with the ids from `first` on. */
export const taskRangesFromRuns = (runs: readonly AttemptRun[], job: JobId, first: TaskRangeId): TaskRange[] =>
  runs.map((run, at) => ({ ...run, id: TaskRangeId(first + at), job, failures: 0, crashes: 0, notBefore: 0 }));

/** A task that has a result, unless its job is being removed: that begins with the first results. */
export function firstRecorded(cursor: number, cancels: Ranges, taskRanges: Ranges): Range | undefined {
  const [found] = difference({ first: 0, last: cursor - 1 }, union(cancels, taskRanges));
  return found && { first: found.first, last: found.first };
}

export const BEING_REMOVED = "the job is being removed";

/** Why these cannot run again; `holder` is another job that has the key of this one. */
export function refusedRerun(runs: readonly AttemptRun[], max: number, holder: JobId | undefined): string | undefined {
  if (runs.length > max) return tooManyRanges(runs.length, max);
  if (runs.length === 0 || holder === undefined) return undefined;
  return `job ${holder} has the key of this one: cancel it, or wait for its end`;
}

export const tooManyRanges = (count: number, max: number): string =>
  `the tasks that would run again lie in ${count} separate ranges, which is more than the ${max} that one request may have: give fewer ranges`;
