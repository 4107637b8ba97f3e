import type { ParcelId } from "../../model/ids.js";
import { type Range, type Ranges, sizeOf, without } from "../../model/ranges.js";
import type { Database } from "./database.js";

const CUT = "UPDATE parcel SET first = ?, last = ? WHERE id = ?";
const REMOVE = "DELETE FROM parcel WHERE id = ?";

/**
 * Cancelled tasks at the ends of a parcel that nobody owns leave it. Those between tasks that are to run stay, for
 * the broker that leases these. Gives how many left.
 */
export function prepareTrim(db: Database): (parcel: Range & { readonly id: ParcelId }, cancels: Ranges) => number {
  const cut = db.prepare(CUT);
  const remove = db.prepare(REMOVE);
  return (parcel, cancels) => {
    const left = without(parcel, cancels);
    const first = left[0]?.first;
    const last = left.at(-1)?.last;
    if (first === undefined || last === undefined) {
      remove.run(parcel.id);
      return sizeOf(parcel);
    }
    if (first > parcel.first || last < parcel.last) cut.run(first, last, parcel.id);
    return sizeOf(parcel) - sizeOf({ first, last });
  };
}
