import { sizeOf } from "../../../model/ranges.js";
import type { TaskRange } from "../../../model/store.js";
import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import {
  freshTaskRange,
  type InsertTaskRange,
  TASK_RANGE_COLUMNS,
  type TaskRangeRow,
  taskRangeFrom,
} from "../task-range-table.js";

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
