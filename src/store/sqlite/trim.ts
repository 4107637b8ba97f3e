import type { TaskRangeId } from "../../model/ids.js";
import { type Range, type Ranges, sizeOf, difference } from "../../model/ranges.js";
import type { Database } from "./database.js";

const CUT = "UPDATE parcel SET first = ?, last = ? WHERE id = ?";
const REMOVE = "DELETE FROM parcel WHERE id = ?";

/**
 * Cancelled tasks at the ends of a parcel that nobody owns leave it. Those between tasks that are to run stay, for
 * the broker that leases these. Gives how many left.
 */
export function prepareTrim(db: Database): (taskRange: Range & { readonly id: TaskRangeId }, cancels: Ranges) => number {
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
