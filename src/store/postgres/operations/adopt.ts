/** The claims of a worker at other brokers become this broker's; from then on the writes of the former owner are lost. */
import type { TaskRangeId } from "../../../model/ids.js";
import { validText } from "../arrays.js";
import type { BatchContext } from "../batch-context.js";
import type { IndexedWrite } from "../stages.js";
import { OWN_EPOCH } from "../statements.js";
import { type ClaimedRow, claimedRangesFrom, SETTLED, TASK_RANGE_FIELDS } from "../task-range-rows.js";

/** $1 the worker. In order of the ids, as every batch locks its task ranges. */
export const ADOPT = `
WITH theirs AS MATERIALIZED (
  SELECT id FROM laboro.task_range WHERE worker = $1::text AND epoch <> ${OWN_EPOCH} ORDER BY id FOR UPDATE)
UPDATE laboro.task_range p SET epoch = ${OWN_EPOCH} FROM theirs WHERE p.id = theirs.id RETURNING p.id`;

/** Read afterwards: it includes what the former owner recorded while this statement waited for it. */
export const HELD = `
SELECT ${TASK_RANGE_FIELDS}, ${SETTLED} FROM laboro.task_range p WHERE p.worker = $1::text AND p.epoch = ${OWN_EPOCH}`;

export async function adopt(batch: BatchContext, { at, write }: IndexedWrite<"adopt">): Promise<void> {
  const worker = validText(write.worker);
  const [adopted, held] = await Promise.all([
    batch.session.send<{ id: TaskRangeId }>(ADOPT, [worker]),
    batch.session.send<ClaimedRow>(HELD, [worker]),
  ]);
  const names = new Set(adopted.map(({ id }) => id));
  batch.writeResults[at] = { op: write.op, taskRanges: claimedRangesFrom(held.filter(({ id }) => names.has(id))) };
}
