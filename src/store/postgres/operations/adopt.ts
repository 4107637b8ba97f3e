/** What a worker has through other brokers becomes this one's; from then on the writes of the former owner miss. */
import type { ParcelId } from "../../../model/ids.js";
import { plain } from "../arrays.js";
import type { Batch } from "../batch.js";
import { type HeldRow, heldFrom, PARCEL_FIELDS, SETTLED } from "../parcels.js";
import type { Placed } from "../stages.js";
import { OWN } from "../statements.js";

/** $1 the worker. In the order of the names, as every batch takes its parcels. */
export const ADOPT = `
WITH theirs AS MATERIALIZED (
  SELECT id FROM laboro.parcel WHERE worker = $1::text AND epoch <> ${OWN} ORDER BY id FOR UPDATE)
UPDATE laboro.parcel p SET epoch = ${OWN} FROM theirs WHERE p.id = theirs.id RETURNING p.id`;

/** Looked at afterwards: what the former owner recorded while this one waited for it counts too. */
export const HELD = `
SELECT ${PARCEL_FIELDS}, ${SETTLED} FROM laboro.parcel p WHERE p.worker = $1::text AND p.epoch = ${OWN}`;

export async function adopt(batch: Batch, { at, write }: Placed<"adopt">): Promise<void> {
  const worker = plain(write.worker);
  const [adopted, held] = await Promise.all([
    batch.session.send<{ id: ParcelId }>(ADOPT, [worker]),
    batch.session.send<HeldRow>(HELD, [worker]),
  ]);
  const names = new Set(adopted.map(({ id }) => id));
  batch.answers[at] = { op: write.op, parcels: heldFrom(held.filter(({ id }) => names.has(id))) };
}
