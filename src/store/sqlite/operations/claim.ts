import { LaboroError } from "../../../model/errors.js";
import type { Operation } from "../batch.js";
import type { Database } from "../database.js";

const FIND =
  "SELECT first, last FROM parcel WHERE id = ? AND epoch = ? AND worker IS NULL AND first <= ? AND last >= ?";
const HAND_OUT = `
INSERT INTO parcel (id, job, first, last, attempt, failures, crashes, not_before, avoid, worker, epoch)
SELECT ?, job, ?, ?, ?, failures, crashes, not_before, avoid, ?, epoch FROM parcel WHERE id = ?`;
const CUT = "UPDATE parcel SET first = ?, last = ? WHERE id = ?";
/** The whole parcel goes to the worker: one row changes. */
const RENAME = "UPDATE parcel SET id = ?, attempt = ?, worker = ? WHERE id = ?";

export function prepareClaim(db: Database): Operation<"claim"> {
  const find = db.prepare(FIND);
  const handOut = db.prepare(HAND_OUT);
  const cut = db.prepare(CUT);
  const rename = db.prepare(RENAME);

  return ({ op, from, parcel, first, last, attempt, worker }, { epoch }) => {
    const row: { first: number; last: number } | undefined = find.get(from, epoch, first, last);
    if (row === undefined) return { op, lost: true };
    if (row.first === first && row.last === last) {
      rename.run(parcel, attempt, worker, from);
      return { op, lost: false };
    }
    if (row.first !== first && row.last !== last) {
      throw new LaboroError(
        "LABORO_INTERNAL",
        `a claim takes ${first}-${last} out of the middle of parcel ${from} (${row.first}-${row.last})`,
      );
    }
    handOut.run(parcel, first, last, attempt, worker, from);
    if (row.first === first) cut.run(last + 1, row.last, from);
    else cut.run(row.first, first - 1, from);
    return { op, lost: false };
  };
}
