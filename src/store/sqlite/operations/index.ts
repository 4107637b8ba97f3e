import type { Batch, Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { JobLedger } from "../job-ledger.js";
import type { JobTable } from "../job-table.js";
import type { AnswerRow, WriteRow } from "../messages.js";
import type { OutputTable } from "../output-table.js";
import type { InsertParcel } from "../parcel-table.js";
import type { ResultTable } from "../result-table.js";
import { prepareAdopt } from "./adopt.js";
import { prepareCancel } from "./cancel.js";
import { prepareClaim } from "./claim.js";
import { prepareHold } from "./hold.js";
import { prepareKeep } from "./keep.js";
import { prepareLease } from "./lease.js";
import { prepareRelease } from "./release.js";
import { prepareRemove } from "./remove.js";
import { prepareReplace } from "./replace.js";
import { prepareRerun } from "./rerun.js";
import { prepareSettle } from "./settle.js";
import { prepareSubmit } from "./submit.js";

export interface Tables {
  readonly db: Database;
  readonly ledger: JobLedger;
  readonly jobs: JobTable;
  readonly results: ResultTable;
  readonly output: OutputTable;
  readonly insertParcel: InsertParcel;
}

export function prepareOperations(tables: Tables): (write: WriteRow, batch: Batch) => AnswerRow {
  const { db, ledger, jobs, results, output, insertParcel } = tables;
  const submit = prepareSubmit(db, ledger, insertParcel);
  const lease = prepareLease(db, insertParcel);
  const claim = prepareClaim(db, jobs);
  const settle = prepareSettle(db, ledger, results, output);
  const replace = prepareReplace(db, ledger, results, output, insertParcel);
  const release = prepareRelease(db, ledger);
  const adopt = prepareAdopt(db);
  const hold = prepareHold(db);
  const cancel = prepareCancel(db, ledger);
  const rerun = prepareRerun(tables);
  const remove = prepareRemove(db, ledger, output);
  const keep = prepareKeep(db);
  // The bytes themselves were written before the transaction began.
  const outputWritten: Operation<"output"> = ({ op }) => ({ op });

  return (write, batch) => {
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
      case "rerun":
        return rerun(write, batch);
      case "remove":
        return remove(write, batch);
      case "keep":
        return keep(write, batch);
      case "output":
        return outputWritten(write, batch);
    }
  };
}
