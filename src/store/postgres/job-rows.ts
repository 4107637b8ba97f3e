/** Rows of task ranges; rows of jobs, with their counters summed over the brokers that have worked on them. */
import { unpack } from "msgpackr";
import type { JobId } from "../../model/ids.js";
import { END_STATES, type Job } from "../../model/job.js";
import type { ClaimedRange } from "../../model/store.js";
import type { JobFilter } from "../../model/store-reads.js";
import {
  checkPattern,
  isOnlyOpen,
  type JobColumns,
  jobFromColumns,
  OPEN_CONDITIONS,
  type States,
} from "../job-rows.js";
import { stateNumber, type TaskRangeRow, taskRangeFrom } from "../rows.js";
import type { Session, Value } from "./connections.js";
import { numberArray, rangesFrom, validText } from "./statements.js";

const FIELDS = `
j.id, j.created, j.spec, j.has_entries AS "hasEntries", j.held, j.cursor, j.cancels::text, j.cancel_reason AS reason,
t.succeeded, t.failed, t.cancelled, s.ended_at AS "endedAt", s.ended_state AS "endedState", s.not_before AS "notBefore",
  j.count, j.open,
j.changes::text`;
const JOBS = "laboro.job j JOIN laboro.job_state s ON s.job = j.id";
const SUMS = `
LATERAL (SELECT coalesce(sum(succeeded), 0)::int AS succeeded, coalesce(sum(failed), 0)::int AS failed,
  coalesce(sum(cancelled), 0)::int AS cancelled FROM laboro.job_counters WHERE job = j.id) AS t`;

export const JOB = `SELECT ${FIELDS} FROM ${JOBS}, ${SUMS} WHERE j.id = $1::bigint`;
export const OPEN_JOBS = `
SELECT ${FIELDS} FROM ${JOBS}, ${SUMS} WHERE s.ended_at IS NULL AND s.not_before IS NULL ORDER BY s.job`;
/** $1 jobs. */
export const JOBS_BY_ID = `SELECT ${FIELDS} FROM ${JOBS}, ${SUMS} WHERE j.id = ANY($1::bigint[])`;

/** Newest first. Jobs are chosen before anything is summed, and LIMIT makes the planner look up the state of each. */
export function pageOfJobs(conditions: readonly Condition[]): string {
  const chosen = conditions.map(({ sql }, i) => sql.replace("?", `$${i + 3}`));
  const where = ["id < $1::bigint", ...chosen].join(" AND ");
  const states = conditions.some(({ ofState }) => ofState) ? "JOIN laboro.job_state ON job_state.job = id" : "";
  const found = `SELECT job.* FROM laboro.job ${states} WHERE ${where} ORDER BY id DESC LIMIT $2::int`;
  const state =
    "LATERAL (SELECT ended_at, ended_state, not_before FROM laboro.job_state WHERE job = j.id LIMIT 1) AS s";
  return `SELECT ${FIELDS} FROM (${found}) AS j, ${state}, ${SUMS} ORDER BY j.id DESC`;
}

export type JobRow = JobColumns<boolean, number>;

export const jobFrom = (row: JobRow): Job =>
  jobFromColumns(row, {
    // Unpacking a Buffer would return the bytes in it as Buffers.
    spec: unpack(new Uint8Array(row.spec)),
    cancels: rangesFrom(row.cancels),
    ended: row.endedState === null ? undefined : END_STATES[row.endedState],
  });

/** The conditions of a filter on jobs, with their values. */
interface Condition {
  /** With a question mark for the value. */
  readonly sql: string;
  readonly value: Value;
  /** On a column of table job_state. */
  readonly ofState: boolean;
}

/** Each list is for its own query. Together they find everything that matches, and nothing twice. */
export function conditionsOf(filter: JobFilter): Condition[][] {
  const { states, name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore, endedBefore } = filter;
  const conditions: Condition[] = [];
  const add = (sql: string, value: Value | undefined, ofState = false): void => {
    if (value !== undefined) conditions.push({ sql, value, ofState });
  };
  if (states !== undefined && !isOnlyOpen(states)) conditions.push(stateCondition(states));
  if (name?.includes("*")) add("name LIKE ?::text", pattern(name));
  else if (name !== undefined) add("name = ?::text", validText(name));
  add("pool = ?::text", pool === undefined ? undefined : validText(pool));
  add("key = ?::text", key === undefined ? undefined : validText(key));
  add("batch_key = ?::text", batchKey === undefined ? undefined : validText(batchKey));
  add("idempotency_key = ?::text", idempotencyKey === undefined ? undefined : validText(idempotencyKey));
  add("created >= ?::float8", createdFrom);
  add("created < ?::float8", createdBefore);
  add("ended_at < ?::float8", endedBefore, true);
  if (states === undefined || !isOnlyOpen(states)) return [conditions];
  return OPEN_CONDITIONS.map((sql) => [{ sql: `${sql} AND ?::boolean`, value: true, ofState: true }, ...conditions]);
}

/** Jobs that did not succeed have an index of their own, too. */
function stateCondition(states: States): Condition {
  const ends = states.filter((state) => state !== "open").map(stateNumber);
  const ended = `${ends.includes(0) ? "" : "ended_state <> 0 AND "}ended_state = ANY(?::smallint[])`;
  const sql = ends.length === states.length ? ended : "(ended_at IS NULL OR ended_state = ANY(?::smallint[]))";
  return { sql, value: numberArray(ends), ofState: true };
}

/** In LIKE a percent sign matches any text, an underscore any character. */
function pattern(name: string): string {
  checkPattern(name);
  return validText(name)
    .replace(/[\\%_]/g, "\\$&")
    .replace(/\*+/g, "%");
}

/** Ended jobs that are kept no longer. */
const KEEP = "CASE s.ended_state WHEN 0 THEN s.keep_ms ELSE s.keep_failed_ms END";
/** LIMIT makes the planner look up each job. */
const NO_KEY = `NOT EXISTS (
  SELECT 1 FROM laboro.job j WHERE j.id = s.job AND j.has_key AND s.ended_at + coalesce(j.key_for_ms, 0) > $1::float8
    LIMIT 1)`;

/** $1 now, $2 limit. */
export const OWN_KEEP_OVER = `
SELECT s.job AS id FROM laboro.job_state s
WHERE s.ended_at IS NOT NULL AND s.keep_failed_ms IS NOT NULL AND s.ended_at + ${KEEP} <= $1::float8 AND ${NO_KEY}
ORDER BY s.ended_at + ${KEEP} LIMIT $2::int`;

/** For jobs without their own time. $1 now, $2 limit, $3 the state, $4 how long these are kept. */
export const KEEP_OVER = `
SELECT s.job AS id FROM laboro.job_state s
WHERE s.ended_at IS NOT NULL AND s.ended_state = $3::smallint AND s.ended_at <= $1::float8 - $4::float8
  AND ${KEEP} IS NULL AND ${NO_KEY}
ORDER BY s.ended_at LIMIT $2::int`;

export async function expiredJobs(
  session: Session,
  now: number,
  { keepMs, keepFailedMs = keepMs }: { keepMs?: number; keepFailedMs?: number },
  limit: number,
): Promise<JobId[]> {
  const rows = [...(await session.send<{ id: JobId }>(OWN_KEEP_OVER, [now, limit]))];
  for (const state of END_STATES) {
    const keep = state === "succeeded" ? keepMs : keepFailedMs;
    if (keep === undefined || rows.length >= limit) continue;
    rows.push(...(await session.send<{ id: JobId }>(KEEP_OVER, [now, limit - rows.length, stateNumber(state), keep])));
  }
  return rows.map(({ id }) => id);
}

export const TASK_RANGE_COLUMNS =
  "id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch";

/** The fields of a task range; `p` is its row. */
export const TASK_RANGE_FIELDS = `
p.id, p.job, p.first, p.last, p.attempt, p.failures, p.crashes, p.not_before AS "notBefore", p.wait_ms AS "waitMs",
  p.avoid, p.worker`;

/** The tasks of a task range that have a result, as a multirange; `p` is its row. */
export const SETTLED = `
(SELECT range_agg(int4range(r.idx, r.idx + 1)) FROM laboro.result r
 WHERE r.job = p.job AND r.idx BETWEEN p.first AND p.last)::text AS settled`;

export type ClaimedRow = TaskRangeRow & { readonly settled: string | null };

export const claimedRangesFrom = (rows: readonly ClaimedRow[]): ClaimedRange[] =>
  rows
    .toSorted((a, b) => a.id - b.id)
    .map((row) => ({ taskRange: taskRangeFrom(row), settled: rangesFrom(row.settled) }));
