/** The SQL of a claim: a worker gets a task range or one end of it. `adopt`: a worker's claims change their broker. */
import { LaboroError } from "../../../base/errors.js";
import type { JobId } from "../../../model/ids.js";
import type { Entries } from "../../../model/job.js";
import { LIMIT_BUCKET, type LimitStart, type Rate, ruleFrom, startTime } from "../../../model/limit.js";
import type { Range } from "../../../model/ranges.js";
import { entriesWithin, type TaskRangeRow } from "../../rows.js";
import type { Database, Statement } from "../database.js";
import type { JobTable } from "../job-table.js";
import { prepareClaimedRange, type SubmittedRanges, TASK_RANGE_COLUMNS } from "../task-range-table.js";
import type { Operation } from "./index.js";

const FIND_RANGE = `
SELECT task_range.first, task_range.last, task_range.job, job.has_entries AS hasEntries
FROM task_range JOIN job ON job.id = task_range.job
WHERE task_range.id = ? AND epoch = ? AND worker IS NULL AND first <= ? AND last >= ?`;
/** The worker gets one end of a task range: a new row for it, and the old row is cut. */
const CLAIM_PART = `
INSERT INTO task_range (id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch)
SELECT ?, job, ?, ?, ?, failures, crashes, not_before, wait_ms, avoid, ?, epoch FROM task_range WHERE id = ?`;
const CUT = "UPDATE task_range SET first = ?, last = ? WHERE id = ?";
/** The worker gets the whole task range: its row changes. */
const CLAIM_WHOLE = "UPDATE task_range SET id = ?, attempt = ?, worker = ? WHERE id = ?";

interface FoundRange extends Range {
  readonly job: JobId;
  readonly hasEntries?: number;
}

export function prepareClaim(db: Database, jobs: JobTable, submittedRanges: SubmittedRanges): Operation<"claim"> {
  const starts = new LimitStarts(db);
  const find = db.prepare(FIND_RANGE);
  const claimPart = db.prepare(CLAIM_PART);
  const cut = db.prepare(CUT);
  const claimWhole = db.prepare(CLAIM_WHOLE);
  const entriesOf = (job: JobId, range: Range): Entries => entriesWithin(jobs.entries(job, range), range);

  return (write, { epoch, now }) => {
    const { op, from, rangeId, first, last, attempt, worker, limits } = write;
    const submitted = submittedRanges.claim(write, epoch);
    const row: FoundRange | undefined = submitted?.taskRange ?? find.get(from, epoch, first, last);
    if (row === undefined) return { op, lost: true };
    if (limits !== undefined) starts.add(limits, last - first + 1, now);
    const hasEntries = submitted?.hasEntries ?? row.hasEntries === 1;
    const claimed = { op, lost: false, ...(hasEntries ? { entries: entriesOf(row.job, { first, last }) } : {}) };
    if (submitted !== undefined) return claimed;
    if (row.first === first && row.last === last) {
      claimWhole.run(rangeId, attempt, worker, from);
      return claimed;
    }
    if (row.first !== first && row.last !== last) {
      throw new LaboroError(
        "LABORO_INTERNAL",
        `a claim takes ${first}-${last} out of the middle of task range ${from} (${row.first}-${row.last})`,
      );
    }
    claimPart.run(rangeId, first, last, attempt, worker, from);
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

// The recent starts of each limit with a rate, stored so that a restart of the broker does not exceed the rate.

const RULE = `SELECT value FROM key_value WHERE bucket = '${LIMIT_BUCKET}' AND key = ?`;
const ADD = `INSERT INTO limit_start (name, at, count) VALUES (?, ?, ?)
  ON CONFLICT (name, at) DO UPDATE SET count = count + excluded.count`;
const FORGET = "DELETE FROM limit_start WHERE name = ? AND at <= ?";

export class LimitStarts {
  readonly #rule: Statement;
  readonly #add: Statement;
  readonly #forget: Statement;
  readonly #all: Statement;

  constructor(db: Database) {
    this.#rule = db.prepare(RULE);
    this.#add = db.prepare(ADD);
    this.#forget = db.prepare(FORGET);
    this.#all = db.prepare("SELECT name, at, count FROM limit_start ORDER BY at");
  }

  add(names: readonly string[], count: number, now: number): void {
    for (const name of names) {
      const rate = this.#rateOf(name);
      if (rate === undefined) continue;
      this.#forget.run(name, now - rate.intervalMs);
      this.#add.run(name, startTime(rate, now), count);
    }
  }

  all(): LimitStart[] {
    return this.#all.all();
  }

  #rateOf(name: string): Rate | undefined {
    const row: { value: string } | undefined = this.#rule.get(name);
    return row === undefined ? undefined : ruleFrom(row.value).rate;
  }
}
