import type { JobId } from "../../../model/ids.js";
import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { JobLedger } from "../job-ledger.js";
import { freshParcel, type InsertParcel } from "../parcel-table.js";

const JOB = `
INSERT INTO job (id, created, request, name, pool, key, count, has_entries, held, cursor)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
RETURNING id`;
const CHUNK = "INSERT INTO entry_chunk (job, first, last, bytes) VALUES (?, ?, ?, ?)";

export function prepareSubmit(db: Database, ledger: JobLedger, insertParcel: InsertParcel): Operation<"submit"> {
  const insertJob = db.prepare(JOB);
  const insertChunk = db.prepare(CHUNK);
  return (write, { epoch, now }) => {
    const { op, request, name, pool, key, count, held, chunks } = write;
    const granted = Math.max(0, Math.min(write.lease, count));
    const entries = chunks === undefined ? 0 : 1;
    const fields = [write.id ?? null, now, request, name, pool, key, count, entries, held ? 1 : 0, granted];
    const row: { id: JobId } = insertJob.get(...fields);
    for (const { first, last, bytes } of chunks ?? []) insertChunk.run(row.id, first, last, bytes);
    // A job without tasks has ended with its submission.
    if (count === 0) ledger.add(row.id, { succeeded: 0, failed: 0, cancelled: 0 });
    if (granted === 0) return { op, id: row.id };
    const parcel = freshParcel(write.parcel, row.id, 0, granted - 1);
    insertParcel(parcel, epoch);
    return { op, id: row.id, parcel };
  };
}
