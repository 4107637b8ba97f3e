/** Rows of jobs, with their counters summed over the brokers that have worked on them. */
import { unpack } from "msgpackr";
import type { JobId } from "../../model/ids.js";
import type { Job, JobEnd, JobSpec } from "../../model/job.js";
import { rangesFrom } from "./arrays.js";
import type { Condition } from "./job-filter.js";

const FIELDS = `
j.id, j.created, j.spec, j.has_entries AS "hasEntries", j.held, j.cursor, j.cancels::text, j.cancel_reason AS reason,
t.succeeded, t.failed, t.cancelled, s.ended_at AS "endedAt", s.ended_state AS "endedState", s.not_before AS "notBefore"`;
const JOBS = "laboro.job j JOIN laboro.job_state s ON s.job = j.id";
const SUMS = `
LATERAL (SELECT coalesce(sum(succeeded), 0)::int AS succeeded, coalesce(sum(failed), 0)::int AS failed,
  coalesce(sum(cancelled), 0)::int AS cancelled FROM laboro.job_counters WHERE job = j.id) AS t`;

export const JOB = `SELECT ${FIELDS} FROM ${JOBS}, ${SUMS} WHERE j.id = $1::bigint`;
export const OPEN_JOBS = `SELECT ${FIELDS} FROM ${JOBS}, ${SUMS} WHERE s.ended_at IS NULL AND s.not_before IS NULL ORDER BY s.job`;
/** $1 jobs. */
export const JOBS_BY_ID = `SELECT ${FIELDS} FROM ${JOBS}, ${SUMS} WHERE j.id = ANY($1::bigint[])`;

/** Newest first: the jobs are chosen before anything is summed, and LIMIT makes the planner look up the state of each. */
export function pageOfJobs(conditions: readonly Condition[]): string {
  const chosen = conditions.map(({ sql }, i) => sql.replace("?", `$${i + 3}`));
  const where = ["id < $1::bigint", ...chosen].join(" AND ");
  const states = conditions.some(({ ofState }) => ofState) ? "JOIN laboro.job_state ON job_state.job = id" : "";
  const found = `SELECT job.* FROM laboro.job ${states} WHERE ${where} ORDER BY id DESC LIMIT $2::int`;
  const state =
    "LATERAL (SELECT ended_at, ended_state, not_before FROM laboro.job_state WHERE job = j.id LIMIT 1) AS s";
  return `SELECT ${FIELDS} FROM (${found}) AS j, ${state}, ${SUMS} ORDER BY j.id DESC`;
}

export interface JobRow {
  readonly id: JobId;
  readonly created: number;
  readonly spec: Uint8Array;
  readonly hasEntries: boolean;
  readonly held: boolean;
  readonly cursor: number;
  readonly cancels: string;
  readonly reason: string | null;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly endedAt: number | null;
  readonly endedState: number | null;
  readonly notBefore: number | null;
}

const ENDS: readonly JobEnd[] = ["succeeded", "failed", "cancelled"];

export function jobFrom(row: JobRow): Job {
  // From a Buffer the bytes in it would come as Buffers.
  const spec: JobSpec = unpack(new Uint8Array(row.spec));
  const state = row.endedState === null ? undefined : ENDS[row.endedState];
  return {
    ...spec,
    id: row.id,
    created: row.created,
    held: row.held,
    hasEntries: row.hasEntries,
    cursor: row.cursor,
    cancels: rangesFrom(row.cancels),
    ...(row.reason === null ? {} : { reason: row.reason }),
    counters: { succeeded: row.succeeded, failed: row.failed, cancelled: row.cancelled },
    ...(row.notBefore === null || row.endedAt !== null ? {} : { delayed: true }),
    ...(row.endedAt === null || state === undefined ? {} : { ended: { at: row.endedAt, state } }),
  };
}

export const jobEndNumber = (end: JobEnd): number => ENDS.indexOf(end);
