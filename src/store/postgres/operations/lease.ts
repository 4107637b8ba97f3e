/** Tasks granted to this broker: released ones in task order, then tasks from the job's cursor on. */
import type { BatchContext } from "../batch-context.js";
import type { IndexedWrite } from "../stages.js";
import { dueAt, OWN_EPOCH } from "../statements.js";
import { TASK_RANGE_COLUMNS, TASK_RANGE_FIELDS, type TaskRangeRow, taskRangeFrom } from "../task-range-rows.js";

/**
 * $1 job, $2 max, $3 the id of the new task range, $4 now. The job's row is locked (locks.ts), so that its cursor does not change;
 * task ranges that another transaction has locked are skipped.
 */
export const LEASE = `
WITH due AS MATERIALIZED (
  SELECT d.*, d.last - d.first + 1 AS size, sum(d.last - d.first + 1) OVER (ORDER BY d.first) AS upto
  FROM (SELECT * FROM laboro.task_range
        WHERE job = $1::bigint AND epoch IS NULL AND ${dueAt("not_before", "$4::float8")}
        ORDER BY first LIMIT $2::int + 1 FOR UPDATE SKIP LOCKED) AS d),
-- One that is larger than what is left to grant is divided.
divided AS MATERIALIZED (SELECT *, ($2::int - (upto - size))::int AS part FROM due WHERE upto > $2::int AND upto - size < $2::int),
granted AS (SELECT least(coalesce(max(upto), 0), $2::int)::int AS tasks FROM due),
fresh AS MATERIALIZED (
  SELECT j.id, j.cursor, least(j.count, j.cursor + $2::int - g.tasks) AS next, j.count FROM laboro.job j, granted g WHERE j.id = $1::bigint),
taken AS (
  UPDATE laboro.task_range p SET epoch = ${OWN_EPOCH} FROM due WHERE p.id = due.id AND due.upto <= $2::int
  RETURNING ${TASK_RANGE_FIELDS}),
cut AS (UPDATE laboro.task_range p SET first = p.first + d.part FROM divided d WHERE p.id = d.id),
made AS (
  INSERT INTO laboro.task_range AS p (${TASK_RANGE_COLUMNS})
  SELECT $3::bigint, job, first, first + part - 1, attempt, failures, crashes, not_before, avoid, NULL, ${OWN_EPOCH} FROM divided
  UNION ALL
  SELECT $3::bigint, id, cursor, next - 1, 0, 0, 0, 0, NULL, NULL, ${OWN_EPOCH} FROM fresh WHERE next > cursor
  RETURNING ${TASK_RANGE_FIELDS}),
moved AS (UPDATE laboro.job j SET cursor = f.next FROM fresh f WHERE j.id = f.id AND f.next > f.cursor),
more AS (SELECT EXISTS (SELECT 1 FROM due WHERE upto > $2::int) OR EXISTS (SELECT 1 FROM fresh WHERE next < count) AS more)
SELECT more, l.* FROM more LEFT JOIN (SELECT * FROM taken UNION ALL SELECT * FROM made) AS l ON true`;

type Row = { readonly more: boolean } & (TaskRangeRow | { readonly id: null });

export async function lease(batch: BatchContext, { at, write }: IndexedWrite<"lease">): Promise<void> {
  const { op, job, max, rangeId } = write;
  const rows = await batch.session.send<Row>(LEASE, [job, Math.max(0, max), rangeId, batch.now]);
  const taskRanges = rows
    .flatMap((row) => (row.id === null ? [] : [taskRangeFrom(row)]))
    .sort((a, b) => a.first - b.first);
  batch.writeResults[at] = { op, job, taskRanges, mayLease: rows[0]?.more === true };
}
