import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { OutputTable } from "../output-table.js";

const TABLES = ["result", "earlier_attempt", "entry_chunk", "task_range"];
const NOTHING = { succeeded: 0, failed: 0, cancelled: 0 };

export function prepareRemove(db: Database, jobCounters: JobCounters, output: OutputTable): Operation<"remove"> {
  const removals = TABLES.map((table) => db.prepare(`DELETE FROM ${table} WHERE job = ?`));
  const removeJob = db.prepare("DELETE FROM job WHERE id = ?");
  return ({ op, job }) => {
    if (jobCounters.add(job, NOTHING)?.ended === undefined) return { op, removed: false };
    for (const removal of removals) removal.run(job);
    removeJob.run(job);
    output.remove(job);
    jobCounters.remove(job);
    return { op, removed: true };
  };
}
