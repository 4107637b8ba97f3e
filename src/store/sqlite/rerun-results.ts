/** Results on their way back: found as runs of neighbours, and made earlier attempts. */
import type { JobId } from "../../model/ids.js";
import type { Counters } from "../../model/job.js";
import type { TaskEnd } from "../../model/outcome.js";
import type { Range, Ranges } from "../../model/ranges.js";
import type { AttemptRun } from "../rerun-ranges.js";
import type { Database } from "./database.js";
import { RESULT_COLUMNS } from "./result-table.js";
import { STATES, type StateQuery, stateQuery } from "./task-states.js";

export interface RerunResults {
  /** Which of these tasks have a result. */
  recorded(job: JobId, range: Range): Ranges;
  /** Those that ended in one of these ways, by attempt. */
  runs(job: JobId, range: Range, ends: readonly TaskEnd[]): AttemptRun[];
  /** Makes them earlier attempts, and says how many of each kind these were. */
  moveToEarlierAttempts(job: JobId, range: Range, ends: readonly TaskEnd[]): Counters;
}

const WITHIN = "job = ? AND idx BETWEEN ? AND ?";

// Among neighbours the index rises with the row's number: their difference names the run.
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

export function prepareRerunResults(db: Database): RerunResults {
  const recorded = db.prepare(RECORDED);
  const byState = STATES.map((state) => ({
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
