import { sizeOf } from "../../../model/ranges.js";
import type { Parcel } from "../../../model/store.js";
import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import { freshParcel, type InsertParcel, PARCEL_COLUMNS, type ParcelRow, parcelFrom } from "../parcel-table.js";

const GIVEN_BACK = `
SELECT ${PARCEL_COLUMNS} FROM parcel
WHERE job = ? AND epoch IS NULL AND not_before <= ?
ORDER BY first
LIMIT 1`;
const TAKE = "UPDATE parcel SET epoch = ? WHERE id = ?";
const SHRINK = "UPDATE parcel SET first = ? WHERE id = ?";
const CURSOR = "SELECT cursor, count FROM job WHERE id = ?";
const ADVANCE = "UPDATE job SET cursor = ? WHERE id = ?";

export function prepareLease(db: Database, insertParcel: InsertParcel): Operation<"lease"> {
  const givenBack = db.prepare(GIVEN_BACK);
  const take = db.prepare(TAKE);
  const shrink = db.prepare(SHRINK);
  const cursorOf = db.prepare(CURSOR);
  const advance = db.prepare(ADVANCE);

  return ({ op, job, most, parcel: id }, { epoch, now }) => {
    const parcels: Parcel[] = [];
    let left = most;
    while (left > 0) {
      const row: ParcelRow | undefined = givenBack.get(job, now);
      if (row === undefined) break;
      const found = parcelFrom(row);
      const size = sizeOf(found);
      if (size > left) {
        // The first of them go as the new parcel, the rest stays given back. Nothing is left to take from the cursor.
        const part = { ...found, id, last: found.first + left - 1 };
        shrink.run(part.last + 1, found.id);
        insertParcel(part, epoch);
        parcels.push(part);
        left = 0;
      } else {
        take.run(epoch, found.id);
        parcels.push(found);
        left -= size;
      }
    }
    const place: { cursor: number; count: number } | undefined = cursorOf.get(job);
    if (place === undefined) return { op, job, parcels, more: false };
    const next = Math.min(place.count, place.cursor + left);
    if (next > place.cursor) {
      const fresh = freshParcel(id, job, place.cursor, next - 1);
      advance.run(next, job);
      insertParcel(fresh, epoch);
      parcels.push(fresh);
    }
    return { op, job, parcels, more: next < place.count || givenBack.get(job, now) !== undefined };
  };
}
