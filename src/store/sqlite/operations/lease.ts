import type { JobId, TaskRangeId } from "../../../model/ids.js";
import { difference, type Range, type Ranges, sizeOf } from "../../../model/ranges.js";
import type { TaskRange } from "../../../model/store.js";
import { freshTaskRange, type TaskRangeRow, taskRangeFrom } from "../../rows.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-table.js";
import { type InsertTaskRange, TASK_RANGE_COLUMNS } from "../task-range-table.js";
import type { Operation } from "./index.js";

const RELEASED = `
SELECT ${TASK_RANGE_COLUMNS} FROM task_range
WHERE job = ?1 AND epoch IS NULL AND (not_before <= ?2 OR not_before > ?2 + coalesce(wait_ms, 0))
ORDER BY first
LIMIT 1`;
const TAKE = "UPDATE task_range SET epoch = ? WHERE id = ?";
const SHRINK = "UPDATE task_range SET first = ? WHERE id = ?";
const CURSOR = "SELECT cursor, count FROM job WHERE id = ?";
const ADVANCE = "UPDATE job SET cursor = ? WHERE id = ?";

export function prepareLease(db: Database, insertTaskRange: InsertTaskRange): Operation<"lease"> {
  const released = db.prepare(RELEASED);
  const take = db.prepare(TAKE);
  const shrink = db.prepare(SHRINK);
  const cursorOf = db.prepare(CURSOR);
  const advance = db.prepare(ADVANCE);

  return ({ op, job, max, rangeId: id }, { epoch, now }) => {
    const taskRanges: TaskRange[] = [];
    let left = max;
    while (left > 0) {
      const row: TaskRangeRow | undefined = released.get(job, now);
      if (row === undefined) break;
      const found = taskRangeFrom(row);
      const size = sizeOf(found);
      if (size > left) {
        // The first tasks are granted as the new task range, the rest stays released. Nothing is taken from the cursor.
        const part = { ...found, id, last: found.first + left - 1 };
        shrink.run(part.last + 1, found.id);
        insertTaskRange(part, epoch);
        taskRanges.push(part);
        left = 0;
      } else {
        take.run(epoch, found.id);
        taskRanges.push(found);
        left -= size;
      }
    }
    const place: { cursor: number; count: number } | undefined = cursorOf.get(job);
    if (place === undefined) return { op, job, taskRanges, mayLease: false };
    const next = Math.min(place.count, place.cursor + left);
    if (next > place.cursor) {
      const fresh = freshTaskRange(id, job, place.cursor, next - 1);
      advance.run(next, job);
      insertTaskRange(fresh, epoch);
      taskRanges.push(fresh);
    }
    return { op, job, taskRanges, mayLease: next < place.count || released.get(job, now) !== undefined };
  };
}

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
 * Removes cancelled tasks from the ends of a released task range. Cancelled tasks between others stay, for the broker
 * that leases the range. Returns the number of removed tasks.
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
