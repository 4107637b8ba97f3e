import { normalize, type Ranges, union, within, without } from "../../../model/ranges.js";
import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { JobLedger } from "../job-ledger.js";

const FIND = "SELECT count, cursor, cancels FROM job WHERE id = ?";
const CANCEL = "UPDATE job SET cancels = ?, reason = coalesce(?, reason), cursor = ? WHERE id = ?";
const NOTHING = { succeeded: 0, failed: 0, cancelled: 0 };

export function prepareCancel(db: Database, ledger: JobLedger): Operation<"cancel"> {
  const find = db.prepare(FIND);
  const cancel = db.prepare(CANCEL);
  return ({ op, job, ranges, reason }) => {
    const before = ledger.add(job, NOTHING);
    const row: { count: number; cursor: number; cancels: string } | undefined = find.get(job);
    if (before === undefined || row === undefined) return { op };
    if (before.ended !== undefined) return { op, progress: before };
    const { count, cursor } = row;
    const stored: Ranges = JSON.parse(row.cancels);
    const cancels = union(stored, within({ first: 0, last: count - 1 }, normalize(ranges)));
    const beyond = without({ first: cursor, last: count - 1 }, cancels).length === 0 ? count - cursor : 0;
    cancel.run(JSON.stringify(cancels), reason ?? null, cursor + beyond, job);
    const progress = ledger.add(job, { ...NOTHING, cancelled: beyond });
    return progress === undefined ? { op } : { op, progress };
  };
}
