import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { OutputTable } from "../output-table.js";
import type { ResultTable } from "../result-table.js";
import type { InsertTaskRange } from "../task-range-table.js";

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
