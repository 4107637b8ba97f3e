/** An ended job goes with all that belongs to it. It has no parcels: every task of it is recorded. */
import type { Batch } from "../batch.js";
import type { Placed } from "../stages.js";
import { OWN } from "../statements.js";

const TABLES = ["tally", "result", "earlier", "entry_chunk", "output"];

export const REMOVE = `
WITH gone AS (DELETE FROM laboro.job WHERE id = $1::bigint AND ended_at IS NOT NULL AND ${OWN} > 0 RETURNING id),
${TABLES.map((table) => `${table}_gone AS (DELETE FROM laboro.${table} WHERE job = $1::bigint AND EXISTS (SELECT 1 FROM gone))`).join(",\n")}
SELECT id FROM gone`;

export async function remove(batch: Batch, { at, write }: Placed<"remove">): Promise<void> {
  const rows = await batch.session.send(REMOVE, [write.job]);
  batch.entries.forget(write.job);
  batch.answers[at] = { op: write.op, removed: rows.length > 0 };
}
