import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import { PARCEL_COLUMNS, type ParcelRow, prepareHeldParcel } from "../parcel-table.js";

const ADOPT = `UPDATE parcel SET epoch = ?1 WHERE worker = ?2 AND epoch <> ?1 RETURNING ${PARCEL_COLUMNS}`;

export function prepareAdopt(db: Database): Operation<"adopt"> {
  const adopt = db.prepare(ADOPT);
  const held = prepareHeldParcel(db);
  return ({ op, worker }, { epoch }) => {
    const rows: ParcelRow[] = adopt.all(epoch, worker);
    return { op, parcels: rows.sort((a, b) => a.id - b.id).map(held) };
  };
}
