import type { Operation } from "../batch.js";
import type { Database } from "../database.js";

const RELEASE = "UPDATE parcel SET epoch = NULL WHERE id = ? AND epoch = ? AND worker IS NULL";

export function prepareRelease(db: Database): Operation<"release"> {
  const release = db.prepare(RELEASE);
  return ({ op, parcel }, { epoch }) => ({ op, lost: release.run(parcel, epoch).changes === 0 });
}
