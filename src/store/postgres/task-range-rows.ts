/** Rows of task ranges. */
import type { JobId, TaskRangeId, WorkerId } from "../../model/ids.js";
import type { ClaimedRange, TaskRange } from "../../model/store.js";
import { rangesFrom } from "./arrays.js";

export const TASK_RANGE_COLUMNS =
  "id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch";

/** The fields of a task range; `p` is its row. */
export const TASK_RANGE_FIELDS = `
p.id, p.job, p.first, p.last, p.attempt, p.failures, p.crashes, p.not_before AS "notBefore", p.wait_ms AS "waitMs", p.avoid, p.worker`;

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

export function taskRangeFrom(row: TaskRangeRow): TaskRange {
  const { id, job, first, last, attempt, failures, crashes, notBefore, waitMs, avoid, worker } = row;
  const known = { id, job, first, last, attempt, failures, crashes, notBefore };
  const wait = waitMs === null ? {} : { waitMs };
  return { ...known, ...wait, ...(avoid === null ? {} : { avoid }), ...(worker === null ? {} : { worker }) };
}

/** The tasks of a task range that have a result, as a multirange; `p` is its row. */
export const SETTLED = `
(SELECT range_agg(int4range(r.idx, r.idx + 1)) FROM laboro.result r
 WHERE r.job = p.job AND r.idx BETWEEN p.first AND p.last)::text AS settled`;

export type ClaimedRow = TaskRangeRow & { readonly settled: string | null };

export const claimedRangesFrom = (rows: readonly ClaimedRow[]): ClaimedRange[] =>
  rows
    .toSorted((a, b) => a.id - b.id)
    .map((row) => ({ taskRange: taskRangeFrom(row), settled: rangesFrom(row.settled) }));
