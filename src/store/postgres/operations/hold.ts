import type { BatchContext } from "../batch-context.js";
import type { IndexedWrite } from "../stages.js";
import { SET_CHANGED } from "../statements.js";

export const HOLD = `UPDATE laboro.job SET held = $2::boolean, ${SET_CHANGED} WHERE id = $1::bigint RETURNING id`;

export async function hold(batch: BatchContext, { at, write }: IndexedWrite<"hold">): Promise<void> {
  const { op, job, held } = write;
  const rows = await batch.session.send(HOLD, [job, held]);
  batch.writeResults[at] = { op, found: rows.length > 0 };
}
