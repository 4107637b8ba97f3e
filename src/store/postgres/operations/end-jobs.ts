/** The counters of jobs after a stage, and the end of jobs without open tasks. */
import type { JobId } from "../../../model/ids.js";
import { numberArray } from "../arrays.js";
import type { BatchContext, Totals } from "../stages.js";
import { isOpen, OWN_EPOCH, SET_CHANGED } from "../statements.js";

/**
 * Two brokers that record the last tasks of a job at the same time do not see each other's results. So a broker without task ranges of
 * the job locks its row before it sums: the second broker sees what the first did. LIMIT makes the planner look up each job: an anti-join
 * would read all task ranges of this broker. $1 jobs.
 */
export const LOCK_ENDING_JOBS = `
SELECT j.id FROM laboro.job j JOIN laboro.job_state s ON s.job = j.id
WHERE j.id = ANY($1::bigint[]) AND ${isOpen("s")} AND j.cursor = j.count AND NOT j.open
  AND (SELECT p.id FROM laboro.task_range p WHERE p.epoch = ${OWN_EPOCH} AND p.job = j.id LIMIT 1) IS NULL
ORDER BY j.id FOR NO KEY UPDATE OF j`;

/** $1 jobs, $2 now. */
export const TOTALS = `
WITH sums AS MATERIALIZED (
  SELECT j.id AS job, j.count, j.open, s.ended_at, j.cursor, coalesce(sum(t.succeeded), 0)::int AS succeeded, coalesce(sum(t.failed), 0)::int AS failed,
    coalesce(sum(t.cancelled), 0)::int AS cancelled
  FROM laboro.job j JOIN laboro.job_state s ON s.job = j.id LEFT JOIN laboro.job_counters t ON t.job = j.id
  WHERE j.id = ANY($1::bigint[]) GROUP BY j.id, s.job),
over AS (
  UPDATE laboro.job_state j
  SET ended_at = $2::float8, ended_state = CASE WHEN s.failed > 0 THEN 1 WHEN s.cancelled > 0 THEN 2 ELSE 0 END, ${SET_CHANGED}
  FROM sums s
  WHERE j.job = s.job AND ${isOpen("j")} AND NOT s.open AND s.cursor = s.count AND s.succeeded + s.failed + s.cancelled >= s.count
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
