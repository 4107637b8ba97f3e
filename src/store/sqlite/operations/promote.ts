import type { JobId } from "../../../model/ids.js";
import type { Write } from "../../../model/store.js";
import type { BatchContext } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { JobTable } from "../job-table.js";
import type { PromotedRow } from "../messages.js";

export const DUE = `
SELECT id FROM job WHERE ended_at IS NULL AND not_before IS NOT NULL AND relative = ? AND not_before <= ?
ORDER BY not_before, id LIMIT ?`;
const START = "UPDATE job SET not_before = NULL WHERE id = ?";

export function preparePromote(
  db: Database,
  jobCounters: JobCounters,
  jobs: JobTable,
): (write: Extract<Write, { op: "promote" }>, batch: BatchContext) => PromotedRow {
  const due = db.prepare(DUE);
  const start = db.prepare(START);
  return ({ op, clock, steady, max }, { now }) => {
    // Jobs that end with this batch are not marked yet.
    jobCounters.write(now);
    const found: { id: JobId }[] = due.all(0, clock, max);
    if (found.length < max) found.push(...(due.all(1, steady, max - found.length) as { id: JobId }[]));
    const promoted = found.map(({ id }) => {
      start.run(id);
      return jobs.find(id);
    });
    return { op, jobs: promoted.filter((job) => job !== undefined) };
  };
}
