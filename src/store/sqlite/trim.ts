import type { TaskRangeId } from "../../model/ids.js";
import { difference, type Range, type Ranges, sizeOf } from "../../model/ranges.js";
import type { Database } from "./database.js";

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
