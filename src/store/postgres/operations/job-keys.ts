/** Which job has a key now. One that has ended keeps it until its time is over and another job asks for it. */
import type { JobId } from "../../../model/ids.js";
import { jobEnd } from "../../../model/job.js";
import { ALL_TASKS } from "../../../model/ranges.js";
import type { Progress } from "../../../model/store.js";
import { multirange, textArray } from "../arrays.js";
import type { BatchContext } from "../stages.js";
import { OWN_EPOCH } from "../statements.js";
import { CANCEL } from "./cancel.js";
import { totalsOf } from "./end-jobs.js";

/** $1 keys, $2 now. In one order at every broker. */
export const FREE_KEYS = `
UPDATE laboro.job SET has_key = false WHERE id IN (
  SELECT j.id FROM laboro.job j JOIN laboro.job_state s ON s.job = j.id
  WHERE j.key = ANY($1::text[]) AND j.has_key AND s.ended_at IS NOT NULL AND ${OWN_EPOCH} > 0
    AND (coalesce(j.key_for_ms, 0) = 0 OR s.ended_at + j.key_for_ms <= $2::float8)
  ORDER BY j.id FOR UPDATE OF j)`;

/** $1 keys. A statement of its own: only its snapshot has the jobs for which the one before has waited. */
export const KEY_HOLDERS = `SELECT id, key FROM laboro.job WHERE key = ANY($1::text[]) AND has_key AND ${OWN_EPOCH} > 0`;
const LOCK_HOLDER = `${KEY_HOLDERS} FOR UPDATE`;
/** $1 job, $2 whether it has its key. */
export const SET_HOLDER = `UPDATE laboro.job SET has_key = $2::boolean WHERE id = $1::bigint AND ${OWN_EPOCH} > 0`;

export interface KeyHolder {
  readonly id: JobId;
  readonly key: string;
}

export async function holderOf({ session, now }: BatchContext, key: string): Promise<JobId | undefined> {
  const keys = textArray([key]);
  const [, [holder]] = await Promise.all([
    session.send(FREE_KEYS, [keys, now]),
    session.send<KeyHolder>(LOCK_HOLDER, [keys]),
  ]);
  return holder?.id;
}

/** The job that has the key loses it and is cancelled, for job `by`. */
export async function takeKey(
  batch: BatchContext,
  key: string,
  by: JobId,
): Promise<{ readonly job: JobId; readonly progress?: Progress } | undefined> {
  const job = await holderOf(batch, key);
  if (job === undefined) return undefined;
  const { session } = batch;
  await Promise.all([
    session.send(SET_HOLDER, [job, false]),
    session.send(CANCEL, [job, multirange([ALL_TASKS]), `replaced by job ${by}`, false]),
  ]);
  const [totals] = await totalsOf(batch, new Set([job]));
  if (totals === undefined) return { job };
  const { succeeded, failed, cancelled, ended } = totals;
  const counters = { succeeded, failed, cancelled };
  return { job, progress: ended ? { counters, ended: jobEnd(counters) } : { counters } };
}
