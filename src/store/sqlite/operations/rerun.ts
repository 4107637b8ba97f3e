/**
 * Ended tasks wait again. Tasks in a task range are skipped. For the others, results with one of the requested ends
 * move to `earlier_attempt`; cancelled tasks without a result never ran.
 */
import type { JobId } from "../../../model/ids.js";
import { type Counters, END_STATES } from "../../../model/job.js";
import type { TaskEnd } from "../../../model/outcome.js";
import { countOf, difference, intersection, normalize, type Range, type Ranges } from "../../../model/ranges.js";
import {
  type AttemptRun,
  BEING_REMOVED,
  firstRecorded,
  joinRuns,
  refusedRerun,
  rerunCandidates,
  runsByAttempt,
  taskRangesFromRuns,
} from "../../rows.js";
import type { Database } from "../database.js";
import type { OutputTable } from "../output-table.js";
import { RESULT_COLUMNS, type StateQuery, stateQuery } from "../result-table.js";
import type { Operation, Tables } from "./index.js";
import { prepareJobKeys } from "./submit.js";

const FIND = "SELECT cursor, cancels, key, has_key AS hasKey FROM job WHERE id = ?";
const TASK_RANGES = "SELECT first, last FROM task_range WHERE job = ?";
const LAST_ATTEMPTS = `
SELECT idx AS "index", max(attempt) AS attempt FROM (
  SELECT idx, attempt FROM earlier_attempt WHERE job = ?1 AND idx BETWEEN ?2 AND ?3
  UNION ALL
  SELECT idx, attempt FROM output WHERE job = ?1 AND idx BETWEEN ?2 AND ?3)
GROUP BY idx`;
/** If no cancel is left, its reason is removed as well. */
const REOPEN = `
UPDATE job SET ended_at = NULL, not_before = NULL, ended_state = NULL, cancels = ?1,
  cancel_reason = CASE WHEN ?1 = '[]' THEN NULL ELSE cancel_reason END
WHERE id = ?2`;

export function prepareRerun({ db, jobCounters, jobs, output, insertTaskRange }: Tables): Operation<"rerun"> {
  const find = db.prepare(FIND);
  const taskRangesOf = db.prepare(TASK_RANGES);
  const reopen = db.prepare(REOPEN);
  const results = prepareRerunResults(db);
  const keys = prepareJobKeys(db, jobCounters);
  const byLastAttempt = prepareByLastAttempt(db, output);

  const neverRan = (job: JobId, candidates: Ranges, cancels: Ranges): Ranges =>
    candidates
      .flatMap((range) => intersection(range, cancels))
      .flatMap((range) => difference(range, results.recorded(job, range)));

  return (write, { epoch, now }) => {
    const { op, job, ends, idCount } = write;
    const row: { cursor: number; cancels: string; key: string | null; hasKey: number } | undefined = find.get(job);
    if (row === undefined) return { op, taskRanges: [], count: 0 };
    const cancels: Ranges = JSON.parse(row.cancels);
    const held: Ranges = normalize(taskRangesOf.all(job));
    const candidates = rerunCandidates(write.ranges, row.cursor, held);
    const unrun = ends.includes("cancelled") ? neverRan(job, candidates, cancels) : [];
    const ran = candidates.flatMap((range) => results.runs(job, range, ends));
    const runs = joinRuns([...ran, ...byLastAttempt(job, unrun)]);
    const holder = row.key === null ? undefined : keys.holder(row.key, now);
    const first = firstRecorded(row.cursor, cancels, held);
    const removed = first !== undefined && results.recorded(job, first).length === 0;
    const refused = removed ? BEING_REMOVED : refusedRerun(runs, idCount, holder === job ? undefined : holder);

    if (runs.length > 0 && refused === undefined) {
      const less = candidates.map((range) => results.moveToEarlierAttempts(job, range, ends)).reduce(sum);
      const again = normalize(runs);
      const left = JSON.stringify(cancels.flatMap((range) => difference(range, again)));
      reopen.run(left, job);
      if (row.key !== null) keys.setHolder(job, true);
      const endedNow = jobCounters.reopen(job, { ...less, cancelled: less.cancelled + countOf(unrun) }, left);
      // The output of attempts that never ended is saved before new attempts begin.
      if (endedNow) output.saveUnended(job);
    }
    jobCounters.writeOne(job, now);
    const found = jobs.find(job);
    const base = { op, ...(found === undefined ? {} : { job: found }) };
    if (refused !== undefined) return { ...base, taskRanges: [], count: 0, refused };
    const taskRanges = taskRangesFromRuns(runs, job, write.rangeId);
    for (const taskRange of taskRanges) insertTaskRange(taskRange, epoch);
    return { ...base, taskRanges, count: countOf(runs) };
  };
}

const sum = (a: Counters, b: Counters): Counters => ({
  succeeded: a.succeeded + b.succeeded,
  failed: a.failed + b.failed,
  cancelled: a.cancelled + b.cancelled,
});

function prepareByLastAttempt(db: Database, output: OutputTable): (job: JobId, ranges: Ranges) => AttemptRun[] {
  const lastAttempts = db.prepare(LAST_ATTEMPTS);
  return (job, ranges) => {
    if (ranges.length === 0) return [];
    const stored = ranges.flatMap(({ first, last }): { index: number; attempt: number }[] =>
      lastAttempts.all(job, first, last),
    );
    return runsByAttempt(ranges, [...output.unended(job), ...stored]);
  };
}

/** Finds the results of tasks that run again, as runs of neighbours, and makes them earlier attempts. */
interface RerunResults {
  /** Which of these tasks have a result. */
  recorded(job: JobId, range: Range): Ranges;
  /** Those that ended in one of these ways, by attempt. */
  runs(job: JobId, range: Range, ends: readonly TaskEnd[]): AttemptRun[];
  /** Makes them earlier attempts, and returns how many of each kind there were. */
  moveToEarlierAttempts(job: JobId, range: Range, ends: readonly TaskEnd[]): Counters;
}

const WITHIN = "job = ? AND idx BETWEEN ? AND ?";

// Among consecutive indexes, the index minus the row's number is constant: it identifies the run.
const RECORDED = `
SELECT min(idx) AS first, max(idx) AS last
FROM (SELECT idx, idx - row_number() OVER (ORDER BY idx) AS run FROM result WHERE ${WITHIN})
GROUP BY run ORDER BY first`;
const runsWith = ({ table, condition }: StateQuery): string => `
SELECT min(idx) AS first, max(idx) AS last, attempt
FROM (SELECT idx, attempt, idx - row_number() OVER (PARTITION BY attempt ORDER BY idx) AS run
      FROM ${table} WHERE ${WITHIN} AND ${condition})
GROUP BY attempt, run`;
const copyWith = ({ table, condition }: StateQuery): string => `
INSERT INTO earlier_attempt (${RESULT_COLUMNS})
SELECT ${RESULT_COLUMNS} FROM ${table} WHERE ${WITHIN} AND ${condition}
ON CONFLICT DO NOTHING`;
const deleteWith = ({ table, condition }: StateQuery): string =>
  `DELETE FROM ${table} WHERE ${WITHIN} AND ${condition}`;

function prepareRerunResults(db: Database): RerunResults {
  const recorded = db.prepare(RECORDED);
  const byState = END_STATES.map((state) => ({
    state,
    runs: db.prepare(runsWith(stateQuery(state))),
    copy: db.prepare(copyWith(stateQuery(state))),
    remove: db.prepare(deleteWith(stateQuery(state))),
  }));
  return {
    recorded: (job, { first, last }) => recorded.all(job, first, last),
    runs: (job, { first, last }, ends) => {
      const found: AttemptRun[] = [];
      for (const { state, runs } of byState) {
        if (!ends.includes(state)) continue;
        for (const run of runs.iterate(job, first, last)) found.push(run);
      }
      return found;
    },
    moveToEarlierAttempts: (job, { first, last }, ends) => {
      const counters = { succeeded: 0, failed: 0, cancelled: 0 };
      for (const { state, copy, remove } of byState) {
        if (!ends.includes(state)) continue;
        copy.run(job, first, last);
        counters[state] = remove.run(job, first, last).changes;
      }
      return counters;
    },
  };
}
