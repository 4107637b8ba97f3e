/** Ended jobs that are kept no longer. */
import type { JobId } from "../../model/ids.js";
import type { Database } from "./database.js";

const KEEP = "CASE ended_state WHEN 'succeeded' THEN keep_ms ELSE keep_failed_ms END";
const NO_KEY = "(has_key = 0 OR ended_at + coalesce(key_for_ms, 0) <= ?1)";
export const OWN_KEEP_OVER = `
SELECT id FROM job
WHERE ended_at IS NOT NULL AND keep_failed_ms IS NOT NULL AND ended_at + ${KEEP} <= ?1 AND ${NO_KEY}
ORDER BY ended_at + ${KEEP} LIMIT ?2`;
/** Of one state, of jobs without a time of their own. */
export const KEEP_OVER = `
SELECT id FROM job
WHERE ended_at IS NOT NULL AND ended_state = ?3 AND ended_at <= ?1 - ?4 AND ${KEEP} IS NULL AND ${NO_KEY}
ORDER BY ended_at LIMIT ?2`;

type ExpiredJobs = (now: number, keep: { keepMs?: number; keepFailedMs?: number }, limit: number) => JobId[];

export function prepareExpiredJobs(db: Database): ExpiredJobs {
  const ownKeepOver = db.prepare(OWN_KEEP_OVER);
  const keepOver = db.prepare(KEEP_OVER);
  return (now, { keepMs, keepFailedMs = keepMs }, limit) => {
    const rows: { id: JobId }[] = ownKeepOver.all(now, limit);
    for (const [state, keep] of [
      ["succeeded", keepMs] as const,
      ...UNSUCCESSFUL.map((end) => [end, keepFailedMs] as const),
    ])
      if (keep !== undefined && rows.length < limit) rows.push(...keepOver.all(now, limit - rows.length, state, keep));
    return rows.map(({ id }) => id);
  };
}

const UNSUCCESSFUL = ["failed", "cancelled"] as const;
