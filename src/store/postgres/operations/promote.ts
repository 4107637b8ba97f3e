/** Delayed jobs whose time has come. Those that another broker has locked are left to it. */
import type { JobId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { numberArray } from "../arrays.js";
import { JOBS_BY_ID, type JobRow, jobFrom } from "../job-rows.js";
import type { BatchContext, IndexedWrite } from "../stages.js";
import { OWN_EPOCH, SET_CHANGED } from "../statements.js";

const DELAYED = "ended_at IS NULL AND not_before IS NOT NULL";
const firstOf = (relative: boolean): string =>
  `(SELECT not_before FROM laboro.job_state WHERE ${DELAYED} AND relative = ${relative} ORDER BY not_before LIMIT 1)`;
export const NEXT_DELAYED = `SELECT ${firstOf(false)} AS clock, ${firstOf(true)} AS steady`;

/** $1 whether relative, $2 the time, $3 at most so many. */
export const PROMOTE = `
WITH due AS MATERIALIZED (
  SELECT job FROM laboro.job_state WHERE ${DELAYED} AND relative = $1::boolean AND not_before <= $2::float8 AND ${OWN_EPOCH} > 0
  ORDER BY not_before, job LIMIT $3::int FOR UPDATE SKIP LOCKED)
UPDATE laboro.job_state s SET not_before = NULL, ${SET_CHANGED} FROM due WHERE s.job = due.job RETURNING s.job AS id`;

/** In the order of the queries: jobs with a named time first, each kind by its time. */
function inOrder(a: Job, b: Job): number {
  const kinds = Number(a.delayMs !== undefined) - Number(b.delayMs !== undefined);
  return kinds || (a.notBefore ?? 0) - (b.notBefore ?? 0) || a.id - b.id;
}

export async function promote(batch: BatchContext, { at, write }: IndexedWrite<"promote">): Promise<void> {
  const { op, clock, steady, max } = write;
  const { session } = batch;
  const found = [...(await session.send<{ id: JobId }>(PROMOTE, [false, clock, max]))];
  if (found.length < max)
    found.push(...(await session.send<{ id: JobId }>(PROMOTE, [true, steady, max - found.length])));
  const ids = found.map(({ id }) => id);
  const rows = ids.length === 0 ? [] : await session.send<JobRow>(JOBS_BY_ID, [numberArray(ids)]);
  const jobs = rows.map(jobFrom);
  batch.writeResults[at] = { op, jobs: jobs.sort(inOrder) };
}
