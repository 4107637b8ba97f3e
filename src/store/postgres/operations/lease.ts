/** Grants tasks to this broker: released ones in task order, then from a job's cursor. Also releases task ranges. */
import type { JobId, TaskRangeId } from "../../../model/ids.js";
import { limitKeys } from "../../../model/limit.js";
import { sizeOf } from "../../../model/ranges.js";
import type { TaskRange, WriteResult } from "../../../model/store.js";
import { type TaskRangeRow, taskRangeFrom } from "../../rows.js";
import { TASK_RANGE_COLUMNS, TASK_RANGE_FIELDS } from "../job-rows.js";
import { isLimitedLease, LimitRooms } from "../limit-rows.js";
import type { BatchContext, IndexedWrite, StageProgress } from "../stages.js";
import {
  addToJobCounters,
  dueAt,
  markChanged,
  numberArray,
  numberColumns,
  OWN_EPOCH,
  owned,
  textArray,
} from "../statements.js";

/** The job's own `maxRunning` is not among the limits of the lease. */
const NOT_NAMED = " AND '#' || id <> ALL(string_to_array(coalesce(a.names, ''), ','))";

/**
 * $1 jobs, each once; $2 how many tasks of each; $3 the ids of the new task ranges; $4 now; if any are `limited`, $5
 * their limits. The rows of the jobs are locked (write-batch.ts), so that their cursors do not change. Task ranges
 * locked by another transaction are skipped. A broker that does not know of a new `maxRunning` is refused.
 */
export const leaseStatement = (limited: boolean): string => `
WITH asked AS MATERIALIZED (
  SELECT a.job, CASE WHEN j.refused THEN 0 ELSE a.max END AS max, a.range_id, j.refused${limited ? ", a.names" : ""}
  FROM unnest($1::bigint[], $2::int[], $3::bigint[]${limited ? ", $5::text[]" : ""})
    AS a (job, max, range_id${limited ? ", names" : ""}),
  LATERAL (
    SELECT coalesce(changes ? 'maxRunning'${limited ? NOT_NAMED : ""}, false) AS refused
    FROM laboro.job WHERE id = a.job LIMIT 1) AS j),
due AS MATERIALIZED (
  SELECT a.max, a.range_id, ${limited ? "a.names, " : ""}d.*
  FROM asked a, LATERAL (
    SELECT d.*, d.last - d.first + 1 AS size, sum(d.last - d.first + 1) OVER (ORDER BY d.first) AS upto
    FROM (SELECT * FROM laboro.task_range p
          WHERE p.job = a.job AND p.epoch IS NULL AND ${dueAt("$4::float8")}
          ORDER BY p.first LIMIT a.max + 1 FOR UPDATE SKIP LOCKED) AS d) AS d),
-- One that is larger than what is left to grant is divided.
divided AS MATERIALIZED (SELECT *, (max - (upto - size))::int AS part FROM due WHERE upto > max AND upto - size < max),
granted AS (
  SELECT a.job, a.max, a.range_id, ${limited ? "a.names, " : ""}least(coalesce(max(d.upto), 0), a.max)::int AS tasks
  FROM asked a LEFT JOIN due d ON d.job = a.job GROUP BY a.job, a.max, a.range_id${limited ? ", a.names" : ""}),
fresh AS MATERIALIZED (
  SELECT g.job, g.range_id, ${limited ? "g.names, " : ""}j.cursor, least(j.count, j.cursor + g.max - g.tasks) AS next,
    j.count
  FROM granted g, LATERAL (SELECT cursor, count FROM laboro.job WHERE id = g.job LIMIT 1) AS j),
taken AS (
  UPDATE laboro.task_range p SET epoch = ${OWN_EPOCH}${limited ? ", limit_names = due.names" : ""} FROM due
    WHERE p.id = due.id AND due.upto <= due.max
  RETURNING ${TASK_RANGE_FIELDS}),
cut AS (UPDATE laboro.task_range p SET first = p.first + d.part FROM divided d WHERE p.id = d.id),
made AS (
  INSERT INTO laboro.task_range AS p (${TASK_RANGE_COLUMNS}${limited ? ", limit_names" : ""})
  SELECT range_id, job, first, first + part - 1, attempt, failures, crashes, not_before, wait_ms, avoid, NULL,
    ${OWN_EPOCH}${limited ? ", names" : ""}
  FROM divided
  UNION ALL
  SELECT range_id, job, cursor, next - 1, 0, 0, 0, 0, NULL, NULL, NULL, ${OWN_EPOCH}${limited ? ", names" : ""}
    FROM fresh WHERE next > cursor
  RETURNING ${TASK_RANGE_FIELDS}),
moved AS (UPDATE laboro.job j SET cursor = f.next FROM fresh f WHERE j.id = f.job AND f.next > f.cursor),
more AS (SELECT job FROM due WHERE upto > max UNION SELECT job FROM fresh WHERE next < count)
SELECT (SELECT array_agg(job)::text FROM more) AS more,
  (SELECT array_agg(job)::text FROM asked WHERE refused) AS refused, l.*
FROM (SELECT 1) AS one LEFT JOIN (SELECT * FROM taken UNION ALL SELECT * FROM made) AS l ON true`;

type Row = { readonly more: string | null; readonly refused: string | null } & (TaskRangeRow | { readonly id: null });

export async function lease(batch: BatchContext, writes: readonly IndexedWrite<"lease">[]): Promise<void> {
  const limited = writes.filter(isLimitedLease);
  if (limited.length === 0) return leaseUpTo(batch, writes, []);
  const rooms = await LimitRooms.read(batch.session, limited);
  const namesOf = ({ write }: IndexedWrite<"lease">): string[] => limitKeys(write.job, write);
  const granted = writes.map((one) => {
    const max = rooms.take(namesOf(one), Math.max(0, one.write.max));
    return { at: one.at, write: { ...one.write, max } };
  });
  const names = writes.map((one) => (isLimitedLease(one) ? namesOf(one).join(",") : null));
  await leaseUpTo(batch, granted, names);
  // A job may have fewer tasks than the limits leave.
  for (const one of granted) rooms.giveBack(namesOf(one), one.write.max - leasedTasks(batch.writeResults[one.at]));
  writes.forEach((one, i) => {
    const result = batch.writeResults[one.at];
    if (result?.op !== "lease" || !result.mayLease || (granted[i]?.write.max ?? 0) >= one.write.max) return;
    const full = rooms.full(namesOf(one));
    if (full !== undefined) batch.writeResults[one.at] = { ...result, limited: full };
  });
}

const leasedTasks = (result: WriteResult | undefined): number =>
  result?.op === "lease" ? result.taskRanges.reduce((sum, taskRange) => sum + sizeOf(taskRange), 0) : 0;

async function leaseUpTo(
  batch: BatchContext,
  writes: readonly IndexedWrite<"lease">[],
  names: readonly (string | null)[],
): Promise<void> {
  const plain = writes.map(({ write }) => write);
  const rows = await batch.session.send<Row>(leaseStatement(names.length > 0), [
    ...numberColumns(plain, "job"),
    numberArray(plain.map(({ max }) => Math.max(0, max))),
    ...numberColumns(plain, "rangeId"),
    batch.now,
    ...(names.length > 0 ? [textArray(names)] : []),
  ]);
  const idsIn = (list = ""): Set<number> => new Set(list.match(/\d+/g)?.map(Number));
  const mayLease = idsIn(rows[0]?.more ?? "");
  const refused = idsIn(rows[0]?.refused ?? "");
  const granted = new Map<JobId, TaskRange[]>();
  for (const row of rows) {
    if (row.id === null) continue;
    const taskRanges = granted.get(row.job) ?? [];
    granted.set(row.job, taskRanges);
    taskRanges.push(taskRangeFrom(row));
  }
  for (const { at, write } of writes) {
    const { op, job } = write;
    const taskRanges = (granted.get(job) ?? []).sort((a, b) => a.first - b.first);
    const result = { op, job, taskRanges, mayLease: mayLease.has(job) };
    batch.writeResults[at] = refused.has(job) ? { ...result, limited: {} } : result;
  }
}

// Waiting task ranges released for any broker. Cancelled tasks at their ends leave them, and are counted.

/** Releases the task ranges that match `condition`. Returns each with the number of tasks that left it. */
export const releaseStatement = (condition: string): string => `
WITH freed AS MATERIALIZED (
  SELECT p.id, p.job, p.last - p.first + 1 AS size, int4multirange(int4range(p.first, p.last + 1)) - j.cancels AS stays
  FROM laboro.task_range p JOIN laboro.job j ON j.id = p.job
  WHERE ${condition} AND p.worker IS NULL),
sizes AS MATERIALIZED (
  SELECT id, job, size - CASE WHEN isempty(stays) THEN 0 ELSE upper(stays) - lower(stays) END AS cancelled FROM freed),
released AS (
  UPDATE laboro.task_range p SET epoch = NULL, first = lower(f.stays), last = upper(f.stays) - 1
  FROM freed f WHERE p.id = f.id AND NOT isempty(f.stays)),
gone AS (DELETE FROM laboro.task_range p USING freed f WHERE p.id = f.id AND isempty(f.stays)),
changed AS (${markChanged("SELECT job FROM freed")}),
counted AS (
  SELECT job, 0 AS bytes, 0 AS succeeded, 0 AS failed, sum(cancelled) AS cancelled FROM sizes GROUP BY job
    HAVING sum(cancelled) > 0),
summed AS (${addToJobCounters("counted")})
SELECT id, job, cancelled FROM sizes`;

export const RELEASE = releaseStatement(`p.id = ANY($1::bigint[]) AND ${owned("p")}`);

export interface ReleasedRange {
  readonly id: TaskRangeId;
  readonly job: JobId;
  readonly cancelled: number;
}

/** The result names the job if cancelled tasks were removed from the range. */
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
    // A second release in the same batch is lost.
    freed.delete(rangeId);
    const counted = row !== undefined && row.cancelled > 0;
    batch.writeResults[at] = { op, lost: row === undefined, ...(counted ? { job: row.job } : {}) };
    if (counted) stageProgress.add(at, row.job, { cancelled: row.cancelled });
  }
}
