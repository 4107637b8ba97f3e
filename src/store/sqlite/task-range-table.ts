/** The table of task ranges. */
import type { TaskRangeId } from "../../model/ids.js";
import { rangesOf } from "../../model/ranges.js";
import type { ClaimedRange, Epoch, TaskRange, Write } from "../../model/store.js";
import { type TaskRangeRow, taskRangeFrom } from "../rows.js";
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

/**
 * The task ranges of jobs that a batch submits. Most are claimed as a whole in the same batch, so they are inserted when
 * another operation needs the table, or before the commit: as they are by then.
 */
export class SubmittedRanges {
  readonly #insert: InsertTaskRange;
  readonly #ranges = new Map<TaskRangeId, SubmittedRange>();

  constructor(insert: InsertTaskRange) {
    this.#insert = insert;
  }

  add(taskRange: TaskRange, hasEntries: boolean): void {
    this.#ranges.set(taskRange.id, { taskRange, hasEntries });
  }

  /** A worker gets all of these tasks. Undefined if they are no such range, or a part of one. */
  claim({ from, rangeId: id, first, last, attempt, worker }: ClaimedPart, epoch: Epoch): SubmittedRange | undefined {
    const found = this.#ranges.get(from);
    if (found?.taskRange.first !== first || found.taskRange.last !== last) {
      if (found !== undefined) this.write(epoch);
      return undefined;
    }
    this.#ranges.delete(from);
    this.add({ ...found.taskRange, id, attempt, worker }, found.hasEntries);
    return found;
  }

  write(epoch: Epoch): void {
    if (this.#ranges.size === 0) return;
    for (const { taskRange } of this.#ranges.values()) this.#insert(taskRange, epoch);
    this.#ranges.clear();
  }

  afterRollback(): void {
    this.#ranges.clear();
  }
}

interface SubmittedRange {
  readonly taskRange: TaskRange;
  readonly hasEntries: boolean;
}

type ClaimedPart = Omit<Extract<Write, { op: "claim" }>, "op">;

const SETTLED = "SELECT idx FROM result WHERE job = ? AND idx BETWEEN ? AND ? ORDER BY idx";

/** Adds to a task range which of its tasks have a result already. */
export function prepareClaimedRange(db: Database): (row: TaskRangeRow) => ClaimedRange {
  const settled = db.prepare(SETTLED);
  return (row) => {
    const rows: { idx: number }[] = settled.all(row.job, row.first, row.last);
    return { taskRange: taskRangeFrom(row), settled: rangesOf(rows.map(({ idx }) => idx)) };
  };
}
