/**
 * Changes of a whole job: cancel, hold, remove; and its end with its last task. If a cancel covers all tasks that no
 * broker has leased yet, the cursor moves to the end of the job. Cancelled tasks at the start or end of a released task
 * range are cut off at once; those in its middle when it is leased.
 */
import type { JobId } from "../../../model/ids.js";
import type { BatchContext, IndexedWrite, StageProgress, Totals } from "../stages.js";
import {
  addToJobCounters,
  isOpen,
  markChanged,
  multirange,
  numberArray,
  OWN_EPOCH,
  SET_CHANGED,
  validText,
} from "../statements.js";

/** $1 job, $2 ranges, $3 reason, $4 whether to skip claimed tasks. The job's row is locked against other changes. */
export const CANCEL = `
WITH claimed AS MATERIALIZED (
  SELECT coalesce(range_agg(int4range(first, last + 1)), '{}') AS tasks
  FROM laboro.task_range WHERE $4::boolean AND job = $1::bigint AND worker IS NOT NULL),
asked AS MATERIALIZED (
  SELECT id, count, cursor,
    cancels + ($2::int4multirange * int4multirange(int4range(0, count)) - (SELECT tasks FROM claimed)) AS cancels
  FROM laboro.job JOIN laboro.job_state s ON s.job = id WHERE id = $1::bigint AND ${isOpen("s")}),
beyond AS MATERIALIZED (
  SELECT id, CASE WHEN int4multirange(int4range(cursor, count)) <@ cancels THEN count - cursor ELSE 0 END AS tasks
    FROM asked),
free AS MATERIALIZED (
  SELECT p.id, p.last - p.first + 1 AS size, int4multirange(int4range(p.first, p.last + 1)) - a.cancels AS stays
  FROM asked a JOIN laboro.task_range p ON p.job = a.id WHERE p.epoch IS NULL),
trimmed AS (
  UPDATE laboro.task_range p SET first = lower(f.stays), last = upper(f.stays) - 1
  FROM free f WHERE p.id = f.id AND NOT isempty(f.stays) AND f.size > upper(f.stays) - lower(f.stays)),
gone AS (DELETE FROM laboro.task_range p USING free f WHERE p.id = f.id AND isempty(f.stays)),
marked AS (
  UPDATE laboro.job j SET cancels = a.cancels, cancel_reason = coalesce($3::text, j.cancel_reason),
    cursor = j.cursor + b.tasks,
    open = j.open AND NOT $2::int4multirange @> j.count
  FROM asked a JOIN beyond b USING (id) WHERE j.id = a.id),
changed AS (${markChanged("SELECT id FROM asked")}),
counted AS MATERIALIZED (
  SELECT b.id AS job, 0 AS bytes, 0 AS succeeded, 0 AS failed,
    b.tasks + (SELECT coalesce(sum(size - CASE WHEN isempty(stays) THEN 0 ELSE upper(stays) - lower(stays) END), 0)
      FROM free) AS cancelled
  FROM beyond b),
summed AS (${addToJobCounters("counted WHERE cancelled > 0")})
SELECT j.id AS job, coalesce((SELECT cancelled FROM counted), 0)::int AS cancelled FROM laboro.job j
  WHERE j.id = $1::bigint`;

export async function cancel(
  batch: BatchContext,
  stageProgress: StageProgress,
  { at, write }: IndexedWrite<"cancel">,
): Promise<void> {
  const { op, job, ranges, reason, unclaimed = false } = write;
  const values = [job, multirange(ranges), reason === undefined ? null : validText(reason), unclaimed];
  const [row] = await batch.session.send<{ job: JobId; cancelled: number }>(CANCEL, values);
  batch.writeResults[at] = { op };
  if (row !== undefined) stageProgress.add(at, job, { cancelled: row.cancelled });
}

export const HOLD = `
WITH found AS (UPDATE laboro.job SET held = $2::boolean WHERE id = $1::bigint RETURNING id),
changed AS (${markChanged("SELECT id FROM found")})
SELECT id FROM found`;

export async function hold(batch: BatchContext, { at, write }: IndexedWrite<"hold">): Promise<void> {
  const { op, job, held } = write;
  const rows = await batch.session.send(HOLD, [job, held]);
  batch.writeResults[at] = { op, found: rows.length > 0 };
}

/** The order in which rows are deleted, and how many for one result: rows with bytes are large. */
const TABLES = [
  { table: "result", order: "idx", share: 1 },
  { table: "earlier_attempt", order: "idx, attempt", share: 1 },
  { table: "entry_chunk", order: "first", share: 0.01 },
  { table: "output", order: "idx, attempt, start_offset", share: 0.1 },
] as const;

/**
 * Deletes an ended job with all its rows, or the first of them if there are many. It has no task ranges: all of its
 * tasks are recorded. $1 job, $2 how many results at most.
 */
export const REMOVE = `
WITH ended AS MATERIALIZED (
  SELECT job FROM laboro.job_state WHERE job = $1::bigint AND ended_at IS NOT NULL AND ${OWN_EPOCH} > 0),
${TABLES.map(
  ({ table, order, share }) => `
${table}_gone AS (
  DELETE FROM laboro.${table} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM laboro.${table} WHERE job = (SELECT job FROM ended) ORDER BY ${order}
      LIMIT ceil($2::int * ${share})))
  RETURNING job)`,
).join(",")},
sizes AS MATERIALIZED (
  SELECT ${TABLES.map(({ table }) => `(SELECT count(*) FROM ${table}_gone)::int AS ${table}`).join(", ")}),
over AS MATERIALIZED (SELECT job FROM ended, sizes
  WHERE ${TABLES.map(({ table, share }) => `${table} < ceil($2::int * ${share})`).join(" AND ")}),
gone AS (DELETE FROM laboro.job WHERE id = (SELECT job FROM over) RETURNING id),
state_gone AS (DELETE FROM laboro.job_state WHERE job = (SELECT job FROM over)),
counters_gone AS (DELETE FROM laboro.job_counters WHERE job = (SELECT job FROM over))
SELECT (SELECT id FROM gone) IS NOT NULL AS removed, (SELECT job FROM ended) IS NOT NULL AS ended,
  ${TABLES.map(({ table, share }) => `ceil(${table} / ${share})`).join(" + ")} AS cost
FROM sizes`;

interface RemovedRow {
  readonly removed: boolean;
  readonly ended: boolean;
  readonly cost: number;
}

export async function remove(batch: BatchContext, { at, write }: IndexedWrite<"remove">): Promise<void> {
  const { op, job } = write;
  batch.entries.delete(job);
  const [row] =
    batch.mayRemove > 0 ? await batch.session.send<RemovedRow>(REMOVE, [job, batch.mayRemove]) : [undefined];
  batch.mayRemove -= Number(row?.cost ?? 0);
  const more = row === undefined || (row.ended && !row.removed);
  batch.writeResults[at] = more ? { op, removed: false, more } : { op, removed: row.removed };
}

// The counters of jobs after a stage, and the end of jobs without open tasks.

/**
 * Two brokers that record the last tasks of a job at the same time do not see each other's results. So a broker without
 * task ranges of the job locks its row before it sums: the second broker sees the results of the first. LIMIT makes the
 * planner look up each job; an anti-join would read all task ranges of this broker. $1 jobs.
 */
export const LOCK_ENDING_JOBS = `
SELECT j.id FROM laboro.job j JOIN laboro.job_state s ON s.job = j.id
WHERE j.id = ANY($1::bigint[]) AND ${isOpen("s")} AND j.cursor = j.count AND NOT j.open
  AND (SELECT p.id FROM laboro.task_range p WHERE p.epoch = ${OWN_EPOCH} AND p.job = j.id LIMIT 1) IS NULL
ORDER BY j.id FOR NO KEY UPDATE OF j`;

/** $1 jobs, $2 now. */
export const TOTALS = `
WITH sums AS MATERIALIZED (
  SELECT j.id AS job, j.count, j.open, s.ended_at, j.cursor, coalesce(sum(t.succeeded), 0)::int AS succeeded,
    coalesce(sum(t.failed), 0)::int AS failed,
    coalesce(sum(t.cancelled), 0)::int AS cancelled
  FROM laboro.job j JOIN laboro.job_state s ON s.job = j.id LEFT JOIN laboro.job_counters t ON t.job = j.id
  WHERE j.id = ANY($1::bigint[]) GROUP BY j.id, s.job),
over AS (
  UPDATE laboro.job_state j
  SET ended_at = $2::float8,
    ended_state = CASE WHEN s.failed > 0 THEN 1 WHEN s.cancelled > 0 THEN 2 ELSE 0 END, ${SET_CHANGED}
  FROM sums s
  WHERE j.job = s.job AND ${isOpen("j")} AND NOT s.open AND s.cursor = s.count
    AND s.succeeded + s.failed + s.cancelled >= s.count
  RETURNING j.job)
SELECT job, count, succeeded, failed, cancelled,
  ended_at IS NOT NULL OR (NOT open AND cursor = count AND succeeded + failed + cancelled >= count) AS ended
FROM sums`;

export async function totalsOf(
  batch: Pick<BatchContext, "session" | "now">,
  jobs: ReadonlySet<JobId>,
): Promise<readonly Totals[]> {
  if (jobs.size === 0) return [];
  const names = numberArray([...jobs]);
  const [, totals] = await Promise.all([
    batch.session.send(LOCK_ENDING_JOBS, [names]),
    batch.session.send<Totals>(TOTALS, [names, batch.now]),
  ]);
  return totals;
}
