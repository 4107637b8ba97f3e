import type { JobId } from "../../../model/ids.js";
import type { BatchContext } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { SubmitRow, WriteResultRow } from "../messages.js";
import { freshTaskRange, type InsertTaskRange } from "../task-range-table.js";

const JOB = `
INSERT INTO job (id, created, spec, name, pool, key, idempotency_key, count, has_entries, held, cursor)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id`;
const FIRST = "SELECT id FROM job WHERE idempotency_key = ?";
const CHUNK = "INSERT INTO entry_chunk (job, first, last, bytes) VALUES (?, ?, ?, ?)";

export function prepareSubmit(
  db: Database,
  jobCounters: JobCounters,
  insertTaskRange: InsertTaskRange,
): (write: SubmitRow, batch: BatchContext) => WriteResultRow {
  const insertJob = db.prepare(JOB);
  const first = db.prepare(FIRST);
  const insertChunk = db.prepare(CHUNK);
  return (write, { epoch, now }) => {
    const { op, spec, name, pool, key, idempotencyKey, count, held, chunks } = write;
    const granted = Math.max(0, Math.min(write.lease, count));
    const entries = chunks === undefined ? 0 : 1;
    const columns = [spec, name, pool, key, idempotencyKey, count, entries, held ? 1 : 0, granted];
    const row: { id: JobId } | undefined = insertJob.get(write.id ?? null, now, ...columns);
    if (row === undefined) {
      const found: { id: JobId } = first.get(idempotencyKey);
      return { op: "duplicate", job: found.id };
    }
    for (const { first, last, bytes } of chunks ?? []) insertChunk.run(row.id, first, last, bytes);
    // A job without tasks has ended with its submission.
    if (count === 0) jobCounters.add(row.id, { succeeded: 0, failed: 0, cancelled: 0 });
    if (granted === 0) return { op, id: row.id };
    const taskRange = freshTaskRange(write.rangeId, row.id, 0, granted - 1);
    insertTaskRange(taskRange, epoch);
    return { op, id: row.id, taskRange };
  };
}
