import type { JobId, ParcelId } from "../../../model/ids.js";
import type { Range } from "../../../model/ranges.js";
import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { JobLedger } from "../job-ledger.js";
import { prepareTrim } from "../trim.js";

const RELEASE =
  "UPDATE parcel SET epoch = NULL WHERE id = ? AND epoch = ? AND worker IS NULL RETURNING id, job, first, last";

export function prepareRelease(db: Database, ledger: JobLedger): Operation<"release"> {
  const release = db.prepare(RELEASE);
  const trim = prepareTrim(db);
  return ({ op, parcel }, { epoch }) => {
    const row: (Range & { id: ParcelId; job: JobId }) | undefined = release.get(parcel, epoch);
    if (row === undefined) return { op, lost: true };
    const cancelled = trim(row, ledger.cancelsOf(row.job));
    if (cancelled === 0) return { op, lost: false };
    const progress = ledger.add(row.job, { succeeded: 0, failed: 0, cancelled });
    return { op, lost: false, job: row.job, ...(progress === undefined ? {} : { progress }) };
  };
}
