import type { JobId, TaskRangeId, WorkerId } from "../../model/ids.js";
import { rangesOf } from "../../model/ranges.js";
import type { ClaimedRange, Epoch, TaskRange } from "../../model/store.js";
import type { Database } from "./database.js";

export const TASK_RANGE_COLUMNS =
  "id, job, first, last, attempt, failures, crashes, not_before AS notBefore, wait_ms AS waitMs, avoid, worker";

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

export function taskRangeFrom({ waitMs, avoid, worker, ...row }: TaskRangeRow): TaskRange {
  const wait = waitMs === null ? {} : { waitMs };
  return { ...row, ...wait, ...(avoid === null ? {} : { avoid }), ...(worker === null ? {} : { worker }) };
}

const INSERT = `
INSERT INTO task_range (id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

export type InsertTaskRange = (taskRange: TaskRange, epoch: Epoch) => void;

export function prepareInsertTaskRange(db: Database): InsertTaskRange {
  const insert = db.prepare(INSERT);
  return (taskRange, epoch) => {
    const { id, job, first, last, attempt, failures, crashes, notBefore, waitMs, avoid, worker } = taskRange;
    const texts = [avoid ?? null, worker ?? null];
    insert.run(id, job, first, last, attempt, failures, crashes, notBefore, waitMs ?? null, ...texts, epoch);
  };
}

/** Tasks that were never handed out, from a job's cursor. */
export const freshTaskRange = (id: TaskRangeId, job: JobId, first: number, last: number): TaskRange => ({
  id,
  job,
  first,
  last,
  attempt: 0,
  failures: 0,
  crashes: 0,
  notBefore: 0,
});

const SETTLED = "SELECT idx FROM result WHERE job = ? AND idx BETWEEN ? AND ? ORDER BY idx";

/** Adds to a task range which of its tasks have a result already. */
export function prepareClaimedRange(db: Database): (row: TaskRangeRow) => ClaimedRange {
  const settled = db.prepare(SETTLED);
  return (row) => {
    const rows: { idx: number }[] = settled.all(row.job, row.first, row.last);
    return { taskRange: taskRangeFrom(row), settled: rangesOf(rows.map(({ idx }) => idx)) };
  };
}
