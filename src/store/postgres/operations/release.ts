/** Waiting task ranges released for any broker. Cancelled tasks at their ends leave them, and are counted. */
import type { JobId, TaskRangeId } from "../../../model/ids.js";
import { numberArray } from "../arrays.js";
import type { BatchContext, IndexedWrite, StageProgress } from "../stages.js";
import { addToJobCounters, markChanged, owned } from "../statements.js";

/** Releases the task ranges that match `condition`. Returns each with the number of tasks that left it. */
export const releaseStatement = (condition: string): string => `
WITH freed AS MATERIALIZED (
  SELECT p.id, p.job, p.last - p.first + 1 AS size, int4multirange(int4range(p.first, p.last + 1)) - j.cancels AS stays
  FROM laboro.task_range p JOIN laboro.job j ON j.id = p.job
  WHERE ${condition} AND p.worker IS NULL),
sizes AS MATERIALIZED (SELECT id, job, size - CASE WHEN isempty(stays) THEN 0 ELSE upper(stays) - lower(stays) END AS cancelled FROM freed),
released AS (
  UPDATE laboro.task_range p SET epoch = NULL, first = lower(f.stays), last = upper(f.stays) - 1
  FROM freed f WHERE p.id = f.id AND NOT isempty(f.stays)),
gone AS (DELETE FROM laboro.task_range p USING freed f WHERE p.id = f.id AND isempty(f.stays)),
changed AS (${markChanged("SELECT job FROM freed")}),
counted AS (
  SELECT job, 0 AS bytes, 0 AS succeeded, 0 AS failed, sum(cancelled) AS cancelled FROM sizes GROUP BY job HAVING sum(cancelled) > 0),
summed AS (${addToJobCounters("counted")})
SELECT id, job, cancelled FROM sizes`;

export const RELEASE = releaseStatement(`p.id = ANY($1::bigint[]) AND ${owned("p")}`);

export interface ReleasedRange {
  readonly id: TaskRangeId;
  readonly job: JobId;
  readonly cancelled: number;
}

/** Gives the jobs of which cancelled tasks left. */
export async function release(
  batch: BatchContext,
  stageProgress: StageProgress,
  writes: readonly IndexedWrite<"release">[],
): Promise<void> {
  const names = numberArray(writes.map(({ write }) => write.rangeId));
  const rows = await batch.session.send<ReleasedRange>(RELEASE, [names]);
  const freed = new Map(rows.map((row) => [row.id, row]));
  for (const { at, write } of writes) {
    const { op, rangeId } = write;
    const row = freed.get(rangeId);
    // Released twice in one batch, it is lost the second time.
    freed.delete(rangeId);
    const counted = row !== undefined && row.cancelled > 0;
    batch.writeResults[at] = { op, lost: row === undefined, ...(counted ? { job: row.job } : {}) };
    if (counted) stageProgress.add(at, row.job, { cancelled: row.cancelled });
  }
}
