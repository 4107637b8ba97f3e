import type { JobId, TaskRangeId } from "../../../model/ids.js";
import { difference, type Range, type Ranges, sizeOf } from "../../../model/ranges.js";
import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";

const RELEASE =
  "UPDATE task_range SET epoch = NULL WHERE id = ? AND epoch = ? AND worker IS NULL RETURNING id, job, first, last";

export function prepareRelease(db: Database, jobCounters: JobCounters): Operation<"release"> {
  const release = db.prepare(RELEASE);
  const trim = prepareTrim(db);
  return ({ op, rangeId }, { epoch }) => {
    const row: (Range & { id: TaskRangeId; job: JobId }) | undefined = release.get(rangeId, epoch);
    if (row === undefined) return { op, lost: true };
    const cancelled = trim(row, jobCounters.cancelsOf(row.job));
    if (cancelled === 0) return { op, lost: false };
    const progress = jobCounters.add(row.job, { succeeded: 0, failed: 0, cancelled });
    return { op, lost: false, job: row.job, ...(progress === undefined ? {} : { progress }) };
  };
}

const CUT = "UPDATE task_range SET first = ?, last = ? WHERE id = ?";
const REMOVE = "DELETE FROM task_range WHERE id = ?";

/**
 * Removes cancelled tasks from the ends of a released task range. Cancelled tasks between others stay, for the broker that leases the
 * range. Returns how many were removed.
 */
export function prepareTrim(
  db: Database,
): (taskRange: Range & { readonly id: TaskRangeId }, cancels: Ranges) => number {
  const cut = db.prepare(CUT);
  const remove = db.prepare(REMOVE);
  return (taskRange, cancels) => {
    const left = difference(taskRange, cancels);
    const first = left[0]?.first;
    const last = left.at(-1)?.last;
    if (first === undefined || last === undefined) {
      remove.run(taskRange.id);
      return sizeOf(taskRange);
    }
    if (first > taskRange.first || last < taskRange.last) cut.run(first, last, taskRange.id);
    return sizeOf(taskRange) - sizeOf({ first, last });
  };
}
