/** What the engine does with each kind of write. */
import type { Epoch } from "../../../model/store.js";
import type { Database } from "../database.js";
import type { JobCounters, JobTable } from "../job-table.js";
import type { OutputTable } from "../output-table.js";
import type { ResultTable } from "../result-table.js";
import { prepareSchedule } from "../schedule-table.js";
import type { InsertTaskRange, SubmittedRanges } from "../task-range-table.js";
import type { WriteResultRow, WriteRow } from "../thread-calls.js";
import { prepareCancel, prepareEdit, prepareHold, preparePromote, prepareRemove } from "./change.js";
import { prepareAdopt, prepareClaim } from "./claim.js";
import { prepareLease, prepareRelease } from "./lease.js";
import { prepareRerun } from "./rerun.js";
import { prepareReplace, prepareSettle } from "./settle.js";
import { prepareSubmit } from "./submit.js";

/** What every write of one batch shares. */
export interface BatchContext {
  readonly epoch: Epoch;
  readonly now: number;
  /** How many rows of removed jobs may still be deleted. */
  mayRemove: number;
}

/** One kind of write, with its statements prepared. */
export type Operation<Op extends WriteRow["op"]> = (
  write: Extract<WriteRow, { op: Op }>,
  batch: BatchContext,
) => Extract<WriteResultRow, { op: Op }>;

export interface Tables {
  readonly db: Database;
  readonly jobCounters: JobCounters;
  readonly jobs: JobTable;
  readonly results: ResultTable;
  readonly output: OutputTable;
  readonly insertTaskRange: InsertTaskRange;
  readonly submittedRanges: SubmittedRanges;
}

type Apply = (write: WriteRow, batch: BatchContext) => WriteResultRow;

type Operations = {
  readonly [Op in WriteRow["op"]]: (write: Extract<WriteRow, { op: Op }>, batch: BatchContext) => WriteResultRow;
};

export function prepareOperations(tables: Tables): Apply {
  const { db, jobCounters, jobs, results, output, insertTaskRange, submittedRanges } = tables;
  const apply: Apply = (write, batch) => {
    if (write.op !== "submit" && write.op !== "claim") submittedRanges.write(batch.epoch);
    // An operation gets the writes of its name.
    return (operations[write.op] as Apply)(write, batch);
  };
  const cancel = prepareCancel(db, jobCounters);
  const operations: Operations = {
    submit: prepareSubmit(db, jobCounters, submittedRanges, cancel),
    lease: prepareLease(db, insertTaskRange),
    claim: prepareClaim(db, jobs, submittedRanges),
    settle: prepareSettle(db, jobCounters, results, output),
    replace: prepareReplace(db, jobCounters, results, output, insertTaskRange),
    release: prepareRelease(db, jobCounters),
    adopt: prepareAdopt(db),
    hold: prepareHold(db),
    cancel,
    edit: prepareEdit(db, jobCounters, jobs),
    promote: preparePromote(db, jobCounters, jobs),
    rerun: prepareRerun(tables),
    remove: prepareRemove(db, jobCounters, output),
    put: preparePut(db),
    // The bytes themselves were written before the transaction began.
    output: ({ op }) => ({ op }),
    schedule: prepareSchedule(db, apply),
  };
  return apply;
}

const FIND = "SELECT version FROM key_value WHERE bucket = ? AND key = ?";
const UPSERT = `INSERT INTO key_value (bucket, key, version, value, updated_at) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (bucket, key) DO UPDATE
    SET version = excluded.version, value = excluded.value, updated_at = excluded.updated_at`;
const DELETE = "DELETE FROM key_value WHERE bucket = ? AND key = ?";

function preparePut(db: Database): Operation<"put"> {
  const find = db.prepare(FIND);
  const upsert = db.prepare(UPSERT);
  const remove = db.prepare(DELETE);
  return ({ op, bucket, key, value, version: expected }, { now }) => {
    const found: { version: number } | undefined = find.get(bucket, key);
    const version = found?.version ?? 0;
    if (expected !== undefined && expected !== version) return { op, stored: false, version };
    if (value === null) {
      remove.run(bucket, key);
      return { op, stored: true, version: 0 };
    }
    upsert.run(bucket, key, version + 1, value, now);
    return { op, stored: true, version: version + 1 };
  };
}
