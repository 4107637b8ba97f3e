import type { Batch } from "../batch.js";
import type { Placed } from "../stages.js";
import { CHANGED } from "../statements.js";

export const HOLD = `UPDATE laboro.job SET held = $2::boolean, ${CHANGED} WHERE id = $1::bigint RETURNING id`;

export async function hold(batch: Batch, { at, write }: Placed<"hold">): Promise<void> {
  const { op, job, held } = write;
  const rows = await batch.session.send(HOLD, [job, held]);
  batch.answers[at] = { op, found: rows.length > 0 };
}
