/**
 * The rows that a batch locks before it changes anything, always in this order: jobs by number, then task ranges by id. So two batches
 * that need the same rows wait for each other without a deadlock.
 *
 * The lock of a job's row keeps out exactly what must not happen meanwhile:
 *   results, tasks that return    KEY SHARE       cancels, reruns, removals; any number of brokers may hold it
 *   leases, holds, releases       NO KEY UPDATE   also leases, holds and releases by other brokers
 *   cancels, reruns, removals     UPDATE          everything
 * A batch locks all of its jobs with the strongest of these that it needs.
 */
import type { JobId, TaskRangeId } from "../../model/ids.js";
import type { Write } from "../../model/store.js";
import { numberArray } from "./arrays.js";
import type { Session } from "./connections.js";
import { OWN_EPOCH } from "./statements.js";

const STRENGTHS = ["KEY SHARE", "NO KEY UPDATE", "UPDATE"] as const;

/** $1 jobs, $2 task ranges whose jobs are locked too. */
export const lockJobs = (strength: (typeof STRENGTHS)[number]): string => `
SELECT id FROM laboro.job
WHERE id IN (SELECT unnest($1::bigint[]) UNION SELECT job FROM laboro.task_range WHERE id = ANY($2::bigint[]))
ORDER BY id FOR ${strength} OF job`;

/** $1 task ranges. One that another broker owns never comes back to this one: its row is not waited for. */
export const LOCK_TASK_RANGES = `
SELECT id FROM laboro.task_range WHERE id = ANY($1::bigint[]) AND epoch = ${OWN_EPOCH} ORDER BY id FOR UPDATE`;

export async function lockRows(session: Session, writes: readonly Write[]): Promise<void> {
  const jobs = new Set<JobId>();
  const rangeIds = new Set<TaskRangeId>();
  const released = new Set<TaskRangeId>();
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
      case "lease":
      case "hold":
        jobs.add(write.job);
        strength = Math.max(strength, 1);
        break;
      case "cancel":
      case "rerun":
      case "remove":
        jobs.add(write.job);
        strength = 2;
        break;
      default:
        break;
    }
  }
  const locks: Promise<unknown>[] = [];
  if (jobs.size > 0 || released.size > 0) {
    const statement = lockJobs(STRENGTHS[strength] ?? "UPDATE");
    locks.push(session.send(statement, [numberArray([...jobs]), numberArray([...released])]));
  }
  if (rangeIds.size > 0) locks.push(session.send(LOCK_TASK_RANGES, [numberArray([...rangeIds])]));
  await Promise.all(locks);
}
