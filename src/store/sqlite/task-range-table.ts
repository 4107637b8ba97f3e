import type { JobId, TaskRangeId } from "../../model/ids.js";
import { rangesOf } from "../../model/ranges.js";
import type { ClaimedRange, Epoch, TaskRange } from "../../model/store.js";
import { type TaskRangeRow, taskRangeFrom } from "../task-range-rows.js";
import type { Database } from "./database.js";

export const TASK_RANGE_COLUMNS =
  "id, job, first, last, attempt, failures, crashes, not_before AS notBefore, wait_ms AS waitMs, avoid, worker";

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
