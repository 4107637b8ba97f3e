import type { BatchContext, Operation } from "../batch-context.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { JobTable } from "../job-table.js";
import type { WriteResultRow, WriteRow } from "../messages.js";
import type { OutputTable } from "../output-table.js";
import type { ResultTable } from "../result-table.js";
import { prepareSchedule } from "../schedule-table.js";
import type { InsertTaskRange } from "../task-range-table.js";
import { prepareCancel, prepareHold, prepareRemove } from "./cancel.js";
import { prepareAdopt, prepareClaim, prepareReplace } from "./claim.js";
import { prepareEdit } from "./edit.js";
import { prepareLease } from "./lease.js";
import { preparePromote } from "./promote.js";
import { preparePut } from "./put.js";
import { prepareRelease } from "./release.js";
import { prepareRerun } from "./rerun.js";
import { prepareSettle } from "./settle.js";
import { prepareSubmit } from "./submit.js";

export interface Tables {
  readonly db: Database;
  readonly jobCounters: JobCounters;
  readonly jobs: JobTable;
  readonly results: ResultTable;
  readonly output: OutputTable;
  readonly insertTaskRange: InsertTaskRange;
}

export function prepareOperations(tables: Tables): (write: WriteRow, batch: BatchContext) => WriteResultRow {
  const { db, jobCounters, jobs, results, output, insertTaskRange } = tables;
  const lease = prepareLease(db, insertTaskRange);
  const claim = prepareClaim(db, jobs);
  const settle = prepareSettle(db, jobCounters, results, output);
  const replace = prepareReplace(db, jobCounters, results, output, insertTaskRange);
  const release = prepareRelease(db, jobCounters);
  const adopt = prepareAdopt(db);
  const hold = prepareHold(db);
  const cancel = prepareCancel(db, jobCounters);
  const submit = prepareSubmit(db, jobCounters, insertTaskRange, cancel);
  const edit = prepareEdit(db, jobCounters, jobs);
  const promote = preparePromote(db, jobCounters, jobs);
  const rerun = prepareRerun(tables);
  const remove = prepareRemove(db, jobCounters, output);
  const put = preparePut(db);
  // The bytes themselves were written before the transaction began.
  const outputWritten: Operation<"output"> = ({ op }) => ({ op });

  const apply = (write: WriteRow, batch: BatchContext): WriteResultRow => {
    switch (write.op) {
      case "submit":
        return submit(write, batch);
      case "lease":
        return lease(write, batch);
      case "claim":
        return claim(write, batch);
      case "settle":
        return settle(write, batch);
      case "replace":
        return replace(write, batch);
      case "release":
        return release(write, batch);
      case "adopt":
        return adopt(write, batch);
      case "hold":
        return hold(write, batch);
      case "cancel":
        return cancel(write, batch);
      case "edit":
        return edit(write, batch);
      case "rerun":
        return rerun(write, batch);
      case "promote":
        return promote(write, batch);
      case "remove":
        return remove(write, batch);
      case "put":
        return put(write, batch);
      case "output":
        return outputWritten(write, batch);
      case "schedule":
        return schedule(write.changes, batch);
    }
  };
  const schedule = prepareSchedule(db, apply);
  return apply;
}
