/**
 * The rows that a batch locks before it changes anything, always in this order: limits by name, jobs by number, task
 * ranges by id, schedules by name. So
 * two batches that need the same rows wait for each other without a deadlock.
 *
 * The lock of a job's row keeps out exactly what must not happen meanwhile:
 *   results, tasks that return    KEY SHARE       cancels, edits, reruns, removals; any number of brokers may hold it
 *   leases, holds, releases       NO KEY UPDATE   also leases, holds and releases by other brokers
 *   cancels, edits, reruns, …     UPDATE          everything
 * A batch locks all of its jobs with the strongest of these that it needs.
 */
import type { JobId, TaskRangeId } from "../../model/ids.js";
import { LIMIT_BUCKET } from "../../model/limit.js";
import type { Write } from "../../model/store.js";
import { numberArray, textArray } from "./arrays.js";
import type { Session } from "./connections.js";
import { OWN_EPOCH, owned } from "./statements.js";

const STRENGTHS = ["KEY SHARE", "NO KEY UPDATE", "UPDATE"] as const;

/** $1 jobs, $2 task ranges whose jobs are locked too. */
export const lockJobs = (strength: (typeof STRENGTHS)[number]): string => `
SELECT id FROM laboro.job
WHERE id IN (SELECT unnest($1::bigint[]) UNION SELECT job FROM laboro.task_range WHERE id = ANY($2::bigint[]))
ORDER BY id FOR ${strength} OF job`;

/** $1 task ranges. One that another broker owns never comes back to this one: its row is not waited for. */
export const LOCK_TASK_RANGES = `
SELECT p.id FROM laboro.task_range p WHERE p.id = ANY($1::bigint[]) AND ${owned("p")} ORDER BY p.id FOR UPDATE`;

/** $1 limits. */
export const LOCK_LIMITS = `
SELECT key FROM laboro.key_value WHERE bucket = '${LIMIT_BUCKET}' AND key = ANY($1::text[]) AND ${OWN_EPOCH} > 0 ORDER BY key FOR UPDATE`;

/** $1 names. */
export const LOCK_SCHEDULES = `
SELECT name FROM laboro.schedule WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE`;

export async function lockRows(session: Session, writes: readonly Write[]): Promise<void> {
  const jobs = new Set<JobId>();
  const limits = new Set<string>();
  const rangeIds = new Set<TaskRangeId>();
  const released = new Set<TaskRangeId>();
  const schedules = new Set<string>();
  let strength = 0;
  for (const write of writes) {
    switch (write.op) {
      case "settle":
      case "replace":
        jobs.add(write.job);
        rangeIds.add(write.rangeId);
        break;
      case "claim":
        rangeIds.add(write.from);
        break;
      case "release":
        rangeIds.add(write.rangeId);
        released.add(write.rangeId);
        strength = Math.max(strength, 1);
        break;
      case "put":
        if (write.bucket === LIMIT_BUCKET) limits.add(write.key);
        break;
      case "lease":
        for (const name of write.limits ?? []) limits.add(name);
        jobs.add(write.job);
        strength = Math.max(strength, 1);
        break;
      case "hold":
        jobs.add(write.job);
        strength = Math.max(strength, 1);
        break;
      case "cancel":
      case "edit":
      case "rerun":
      case "remove":
        jobs.add(write.job);
        strength = 2;
        break;
      case "schedule":
        for (const { name, writes: ofRun } of write.changes) {
          schedules.add(name);
          for (const one of ofRun) {
            if (one.op !== "cancel") continue;
            jobs.add(one.job);
            strength = 2;
          }
        }
        break;
      default:
        break;
    }
  }
  const locks: Promise<unknown>[] = [];
  if (limits.size > 0) locks.push(session.send(LOCK_LIMITS, [textArray([...limits])]));
  if (jobs.size > 0 || released.size > 0) {
    const statement = lockJobs(STRENGTHS[strength] ?? "UPDATE");
    locks.push(session.send(statement, [numberArray([...jobs]), numberArray([...released])]));
  }
  if (rangeIds.size > 0) locks.push(session.send(LOCK_TASK_RANGES, [numberArray([...rangeIds])]));
  if (schedules.size > 0) locks.push(session.send(LOCK_SCHEDULES, [textArray([...schedules])]));
  await Promise.all(locks);
}
