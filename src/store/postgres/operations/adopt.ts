/** What a worker has through other brokers becomes this one's; from then on the writes of the former owner miss. */
import type { TaskRangeId } from "../../../model/ids.js";
import { validText } from "../arrays.js";
import type { BatchContext } from "../batch-context.js";
import { type ClaimedRow, claimedRangesFrom, TASK_RANGE_FIELDS, SETTLED } from "../task-range-rows.js";
import type { IndexedWrite } from "../stages.js";
import { OWN_EPOCH } from "../statements.js";

/** $1 the worker. In the order of the names, as every batch takes its parcels. */
export const ADOPT = `
WITH theirs AS MATERIALIZED (
  SELECT id FROM laboro.parcel WHERE worker = $1::text AND epoch <> ${OWN_EPOCH} ORDER BY id FOR UPDATE)
UPDATE laboro.parcel p SET epoch = ${OWN_EPOCH} FROM theirs WHERE p.id = theirs.id RETURNING p.id`;

/** Looked at afterwards: what the former owner recorded while this one waited for it counts too. */
export const HELD = `
SELECT ${TASK_RANGE_FIELDS}, ${SETTLED} FROM laboro.parcel p WHERE p.worker = $1::text AND p.epoch = ${OWN_EPOCH}`;

export async function adopt(batch: BatchContext, { at, write }: IndexedWrite<"adopt">): Promise<void> {
  const worker = validText(write.worker);
  const [adopted, held] = await Promise.all([
    batch.session.send<{ id: TaskRangeId }>(ADOPT, [worker]),
    batch.session.send<ClaimedRow>(HELD, [worker]),
  ]);
  const names = new Set(adopted.map(({ id }) => id));
  batch.writeResults[at] = { op: write.op, taskRanges: claimedRangesFrom(held.filter(({ id }) => names.has(id))) };
}
