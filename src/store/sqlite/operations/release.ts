import type { JobId, TaskRangeId } from "../../../model/ids.js";
import type { Range } from "../../../model/ranges.js";
import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import { prepareTrim } from "../trim.js";

const RELEASE =
  "UPDATE task_range SET epoch = NULL WHERE id = ? AND epoch = ? AND worker IS NULL RETURNING id, job, first, last";

export function prepareRelease(db: Database, jobCounters: JobCounters): Operation<"release"> {
  const release = db.prepare(RELEASE);
  const trim = prepareTrim(db);
  return ({ op, rangeId }, { epoch }) => {
    const row: (Range & { id: TaskRangeId; job: JobId }) | undefined = release.get(rangeId, epoch);
    if (row === undefined) return { op, lost: true };
    const cancelled = trim(row, jobCounters.cancelsOf(row.job));
    if (cancelled === 0) return { op, lost: false };
    const progress = jobCounters.add(row.job, { succeeded: 0, failed: 0, cancelled });
    return { op, lost: false, job: row.job, ...(progress === undefined ? {} : { progress }) };
  };
}
