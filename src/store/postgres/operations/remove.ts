/** Deletes an ended job with all its rows. It has no task ranges: every task of it is recorded. */
import type { BatchContext } from "../batch-context.js";
import type { IndexedWrite } from "../stages.js";
import { OWN_EPOCH } from "../statements.js";

const TABLES = ["job_state", "job_counters", "result", "earlier_attempt", "entry_chunk", "output"];

export const REMOVE = `
WITH gone AS (
  DELETE FROM laboro.job
  WHERE id = $1::bigint AND (SELECT ended_at FROM laboro.job_state WHERE job = $1::bigint) IS NOT NULL AND ${OWN_EPOCH} > 0 RETURNING id),
${TABLES.map((table) => `${table}_gone AS (DELETE FROM laboro.${table} WHERE job = $1::bigint AND EXISTS (SELECT 1 FROM gone))`).join(",\n")}
SELECT id FROM gone`;

export async function remove(batch: BatchContext, { at, write }: IndexedWrite<"remove">): Promise<void> {
  const rows = await batch.session.send(REMOVE, [write.job]);
  batch.entries.delete(write.job);
  batch.writeResults[at] = { op: write.op, removed: rows.length > 0 };
}
