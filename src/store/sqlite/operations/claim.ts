/** Task ranges that change hands: claimed by a worker, adopted from an earlier start of the broker, replaced by what is left of them. */
import { LaboroError } from "../../../base/errors.js";
import type { JobId } from "../../../model/ids.js";
import type { Entries } from "../../../model/job.js";
import type { Range } from "../../../model/ranges.js";
import { entriesWithin } from "../../entry-chunks.js";
import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { JobTable } from "../job-table.js";
import { LimitStarts } from "../limit-starts.js";
import type { OutputTable } from "../output-table.js";
import type { ResultTable } from "../result-table.js";
import {
  type InsertTaskRange,
  prepareClaimedRange,
  TASK_RANGE_COLUMNS,
  type TaskRangeRow,
} from "../task-range-table.js";

const FIND = `
SELECT task_range.first, task_range.last, task_range.job, job.has_entries AS hasEntries
FROM task_range JOIN job ON job.id = task_range.job
WHERE task_range.id = ? AND epoch = ? AND worker IS NULL AND first <= ? AND last >= ?`;
const HAND_OUT = `
INSERT INTO task_range (id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch)
SELECT ?, job, ?, ?, ?, failures, crashes, not_before, wait_ms, avoid, ?, epoch FROM task_range WHERE id = ?`;
const CUT = "UPDATE task_range SET first = ?, last = ? WHERE id = ?";
/** The whole task range goes to the worker: one row changes. */
const RENAME = "UPDATE task_range SET id = ?, attempt = ?, worker = ? WHERE id = ?";

interface FoundRange extends Range {
  readonly job: JobId;
  readonly hasEntries: number;
}

export function prepareClaim(db: Database, jobs: JobTable): Operation<"claim"> {
  const starts = new LimitStarts(db);
  const find = db.prepare(FIND);
  const handOut = db.prepare(HAND_OUT);
  const cut = db.prepare(CUT);
  const rename = db.prepare(RENAME);
  const entriesOf = (job: JobId, range: Range): Entries => entriesWithin(jobs.entries(job, range), range);

  return ({ op, from, rangeId, first, last, attempt, worker, limits }, { epoch, now }) => {
    const row: FoundRange | undefined = find.get(from, epoch, first, last);
    if (row === undefined) return { op, lost: true };
    if (limits !== undefined) starts.add(limits, last - first + 1, now);
    const claimed = { op, lost: false, ...(row.hasEntries ? { entries: entriesOf(row.job, { first, last }) } : {}) };
    if (row.first === first && row.last === last) {
      rename.run(rangeId, attempt, worker, from);
      return claimed;
    }
    if (row.first !== first && row.last !== last) {
      throw new LaboroError(
        "LABORO_INTERNAL",
        `a claim takes ${first}-${last} out of the middle of task range ${from} (${row.first}-${row.last})`,
      );
    }
    handOut.run(rangeId, first, last, attempt, worker, from);
    if (row.first === first) cut.run(last + 1, row.last, from);
    else cut.run(row.first, first - 1, from);
    return claimed;
  };
}

const ADOPT = `UPDATE task_range SET epoch = ?1 WHERE worker = ?2 AND epoch <> ?1 RETURNING ${TASK_RANGE_COLUMNS}`;

export function prepareAdopt(db: Database): Operation<"adopt"> {
  const adopt = db.prepare(ADOPT);
  const held = prepareClaimedRange(db);
  return ({ op, worker }, { epoch }) => {
    const rows: TaskRangeRow[] = adopt.all(epoch, worker);
    return { op, taskRanges: rows.sort((a, b) => a.id - b.id).map(held) };
  };
}

const REMOVE = "DELETE FROM task_range WHERE id = ? AND epoch = ?";

export function prepareReplace(
  db: Database,
  jobCounters: JobCounters,
  results: ResultTable,
  output: OutputTable,
  insertTaskRange: InsertTaskRange,
): Operation<"replace"> {
  const remove = db.prepare(REMOVE);
  return ({ op, job, rangeId, replacements, earlierAttempts, cancelled }, { epoch }) => {
    if (remove.run(rangeId, epoch).changes === 0) return { op, lost: true };
    for (const piece of replacements) insertTaskRange({ ...piece, job }, epoch);
    results.insertEarlierAttempts(job, earlierAttempts);
    output.saveReferences(job, earlierAttempts);
    const progress = jobCounters.add(job, { succeeded: 0, failed: 0, cancelled });
    return progress === undefined ? { op, lost: false } : { op, lost: false, progress };
  };
}
