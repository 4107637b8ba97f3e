import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { JobLedger } from "../job-ledger.js";
import type { OutputTable } from "../output-table.js";
import type { InsertParcel } from "../parcel-table.js";
import type { ResultTable } from "../result-table.js";

const REMOVE = "DELETE FROM parcel WHERE id = ? AND epoch = ?";

export function prepareReplace(
  db: Database,
  ledger: JobLedger,
  results: ResultTable,
  output: OutputTable,
  insertParcel: InsertParcel,
): Operation<"replace"> {
  const remove = db.prepare(REMOVE);
  return ({ op, job, parcel, pieces, earlier, cancelled }, { epoch }) => {
    if (remove.run(parcel, epoch).changes === 0) return { op, lost: true };
    for (const piece of pieces) insertParcel({ ...piece, job }, epoch);
    results.insertEarlier(job, earlier);
    output.keep(job, earlier);
    const progress = ledger.add(job, { succeeded: 0, failed: 0, cancelled });
    return progress === undefined ? { op, lost: false } : { op, lost: false, progress };
  };
}
