/** Rows of jobs, with their counters summed over the brokers that have worked on them. */
import { unpack } from "msgpackr";
import type { JobId } from "../../model/ids.js";
import type { Job, JobEnd, JobSpec } from "../../model/job.js";
import { rangesFrom } from "./arrays.js";
import type { Condition } from "./job-filter.js";

const FIELDS = `
j.id, j.created, j.spec, j.has_entries AS "hasEntries", j.held, j.cursor, j.cancels::text, j.cancel_reason AS reason,
t.succeeded, t.failed, t.cancelled, j.ended_at AS "endedAt", j.ended_state AS "endedState"`;
const SUMS = `
LATERAL (SELECT coalesce(sum(succeeded), 0)::int AS succeeded, coalesce(sum(failed), 0)::int AS failed,
  coalesce(sum(cancelled), 0)::int AS cancelled FROM laboro.job_counters WHERE job = j.id) AS t`;

export const JOB = `SELECT ${FIELDS} FROM laboro.job j, ${SUMS} WHERE j.id = $1::bigint`;
export const OPEN_JOBS = `SELECT ${FIELDS} FROM laboro.job j, ${SUMS} WHERE j.ended_at IS NULL ORDER BY j.id`;

/** Newest first: the jobs are chosen before anything is summed. */
export function pageOfJobs(conditions: readonly Condition[]): string {
  const chosen = conditions.map(({ sql }, i) => sql.replace("?", `$${i + 3}`));
  const where = ["id < $1::bigint", ...chosen].join(" AND ");
  return `
SELECT ${FIELDS} FROM (SELECT * FROM laboro.job WHERE ${where} ORDER BY id DESC LIMIT $2::int) AS j, ${SUMS} ORDER BY j.id DESC`;
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
    ...(row.endedAt === null || state === undefined ? {} : { ended: { at: row.endedAt, state } }),
  };
}

export const jobEndNumber = (end: JobEnd): number => ENDS.indexOf(end);
