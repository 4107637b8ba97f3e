import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { JobLedger } from "../job-ledger.js";
import type { OutputTable } from "../output-table.js";

const TABLES = ["result", "earlier", "entry_chunk", "parcel"];
const NOTHING = { succeeded: 0, failed: 0, cancelled: 0 };

export function prepareRemove(db: Database, ledger: JobLedger, output: OutputTable): Operation<"remove"> {
  const removals = TABLES.map((table) => db.prepare(`DELETE FROM ${table} WHERE job = ?`));
  const removeJob = db.prepare("DELETE FROM job WHERE id = ?");
  return ({ op, job }) => {
    if (ledger.add(job, NOTHING)?.ended === undefined) return { op, removed: false };
    for (const removal of removals) removal.run(job);
    removeJob.run(job);
    output.remove(job);
    ledger.remove(job);
    return { op, removed: true };
  };
}
