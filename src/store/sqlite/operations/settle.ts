/** Results of tasks, and replacements of task ranges. */
import type { TaskResult } from "../../../model/outcome.js";
import { contains, type Ranges } from "../../../model/ranges.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-table.js";
import type { OutputTable } from "../output-table.js";
import type { ResultTable } from "../result-table.js";
import type { InsertTaskRange } from "../task-range-table.js";
import type { Operation } from "./index.js";

const FIND = "SELECT 1 FROM task_range WHERE id = ? AND epoch = ?";
const REMOVE = "DELETE FROM task_range WHERE id = ? AND epoch = ?";

export function prepareSettle(
  db: Database,
  jobCounters: JobCounters,
  results: ResultTable,
  output: OutputTable,
): Operation<"settle"> {
  const find = db.prepare(FIND);
  const remove = db.prepare(REMOVE);
  return (write, { epoch }) => {
    const { op, job, rangeId } = write;
    const mine = write.empty ? remove.run(rangeId, epoch).changes > 0 : find.get(rangeId, epoch) !== undefined;
    if (!mine) return { op, lost: true };
    const cancels = jobCounters.cancelsOf(job);
    const ends = cancels.length === 0 ? write.results : write.results.map((end) => asCancelled(end, cancels));
    const progress = jobCounters.add(job, results.insert(job, ends));
    output.saveReferences(job, write.results);
    return progress === undefined ? { op, lost: false } : { op, lost: false, progress };
  };
}

/** After an acknowledged cancel a task ends as cancelled, even if its broker does not know of the cancel yet. */
const asCancelled = (end: TaskResult, cancels: Ranges): TaskResult =>
  contains(cancels, end.index) ? { ...end, state: "cancelled" } : end;

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
