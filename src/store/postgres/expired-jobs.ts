/** Ended jobs that are kept no longer. */
import type { JobId } from "../../model/ids.js";
import type { Session } from "./connections.js";
import { jobEndNumber } from "./job-rows.js";

const KEEP = "CASE s.ended_state WHEN 0 THEN s.keep_ms ELSE s.keep_failed_ms END";
/** LIMIT makes the planner look up each job. */
const NO_KEY = `NOT EXISTS (
  SELECT 1 FROM laboro.job j WHERE j.id = s.job AND j.has_key AND s.ended_at + coalesce(j.key_for_ms, 0) > $1::float8 LIMIT 1)`;

/** $1 now, $2 at most so many. */
export const OWN_KEEP_OVER = `
SELECT s.job AS id FROM laboro.job_state s
WHERE s.ended_at IS NOT NULL AND s.keep_failed_ms IS NOT NULL AND s.ended_at + ${KEEP} <= $1::float8 AND ${NO_KEY}
ORDER BY s.ended_at + ${KEEP} LIMIT $2::int`;

/** Of jobs without a time of their own. $1 now, $2 at most so many, $3 the state, $4 how long these are kept. */
export const KEEP_OVER = `
SELECT s.job AS id FROM laboro.job_state s
WHERE s.ended_at IS NOT NULL AND s.ended_state = $3::smallint AND s.ended_at <= $1::float8 - $4::float8 AND ${KEEP} IS NULL AND ${NO_KEY}
ORDER BY s.ended_at LIMIT $2::int`;

export async function expiredJobs(
  session: Session,
  now: number,
  { keepMs, keepFailedMs = keepMs }: { keepMs?: number; keepFailedMs?: number },
  limit: number,
): Promise<JobId[]> {
  const rows = [...(await session.send<{ id: JobId }>(OWN_KEEP_OVER, [now, limit]))];
  for (const state of ["succeeded", "failed", "cancelled"] as const) {
    const keep = state === "succeeded" ? keepMs : keepFailedMs;
    if (keep === undefined || rows.length >= limit) continue;
    rows.push(...(await session.send<{ id: JobId }>(KEEP_OVER, [now, limit - rows.length, jobEndNumber(state), keep])));
  }
  return rows.map(({ id }) => id);
}
