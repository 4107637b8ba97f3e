import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import { prepareClaimedRange, TASK_RANGE_COLUMNS, type TaskRangeRow } from "../task-range-table.js";

const ADOPT = `UPDATE task_range SET epoch = ?1 WHERE worker = ?2 AND epoch <> ?1 RETURNING ${TASK_RANGE_COLUMNS}`;

export function prepareAdopt(db: Database): Operation<"adopt"> {
  const adopt = db.prepare(ADOPT);
  const held = prepareClaimedRange(db);
  return ({ op, worker }, { epoch }) => {
    const rows: TaskRangeRow[] = adopt.all(epoch, worker);
    return { op, taskRanges: rows.sort((a, b) => a.id - b.id).map(held) };
  };
}
