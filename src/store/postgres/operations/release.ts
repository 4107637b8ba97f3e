/** Waiting parcels given back for any broker. Cancelled tasks at their ends leave them, and are counted. */
import type { JobId, ParcelId } from "../../../model/ids.js";
import { numbers } from "../arrays.js";
import type { Batch } from "../batch.js";
import type { Ledger } from "../ledger.js";
import type { Placed } from "../stages.js";
import { addToTally, CHANGED, OWN } from "../statements.js";

/** Parcels that `condition` chooses are nobody's from now on. Gives each with how many tasks left it. */
export const giveBack = (condition: string): string => `
WITH freed AS MATERIALIZED (
  SELECT p.id, p.job, p.last - p.first + 1 AS size, int4multirange(int4range(p.first, p.last + 1)) - j.cancels AS stays
  FROM laboro.parcel p JOIN laboro.job j ON j.id = p.job
  WHERE ${condition} AND p.worker IS NULL),
sizes AS MATERIALIZED (SELECT id, job, size - CASE WHEN isempty(stays) THEN 0 ELSE upper(stays) - lower(stays) END AS cancelled FROM freed),
kept AS (
  UPDATE laboro.parcel p SET epoch = NULL, first = lower(f.stays), last = upper(f.stays) - 1
  FROM freed f WHERE p.id = f.id AND NOT isempty(f.stays)),
gone AS (DELETE FROM laboro.parcel p USING freed f WHERE p.id = f.id AND isempty(f.stays)),
told AS (UPDATE laboro.job SET ${CHANGED} WHERE id IN (SELECT job FROM freed)),
counted AS (
  SELECT job, 0 AS bytes, 0 AS succeeded, 0 AS failed, sum(cancelled) AS cancelled FROM sizes GROUP BY job HAVING sum(cancelled) > 0),
summed AS (${addToTally("counted")})
SELECT id, job, cancelled FROM sizes`;

export const RELEASE = giveBack(`p.id = ANY($1::bigint[]) AND p.epoch = ${OWN}`);

export interface Freed {
  readonly id: ParcelId;
  readonly job: JobId;
  readonly cancelled: number;
}

/** Gives the jobs of which cancelled tasks left. */
export async function release(batch: Batch, ledger: Ledger, writes: readonly Placed<"release">[]): Promise<void> {
  const names = numbers(writes.map(({ write }) => write.parcel));
  const rows = await batch.session.send<Freed>(RELEASE, [names]);
  const freed = new Map(rows.map((row) => [row.id, row]));
  for (const { at, write } of writes) {
    const { op, parcel } = write;
    const row = freed.get(parcel);
    // Named twice, it is nobody's the second time.
    freed.delete(parcel);
    const counted = row !== undefined && row.cancelled > 0;
    batch.answers[at] = { op, lost: row === undefined, ...(counted ? { job: row.job } : {}) };
    if (counted) ledger.add(at, row.job, { cancelled: row.cancelled });
  }
}
