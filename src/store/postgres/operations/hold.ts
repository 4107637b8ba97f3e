import type { BatchContext } from "../batch-context.js";
import type { IndexedWrite } from "../stages.js";
import { markChanged } from "../statements.js";

export const HOLD = `
WITH found AS (UPDATE laboro.job SET held = $2::boolean WHERE id = $1::bigint RETURNING id),
changed AS (${markChanged("SELECT id FROM found")})
SELECT id FROM found`;

export async function hold(batch: BatchContext, { at, write }: IndexedWrite<"hold">): Promise<void> {
  const { op, job, held } = write;
  const rows = await batch.session.send(HOLD, [job, held]);
  batch.writeResults[at] = { op, found: rows.length > 0 };
}
