import type { JobId, ParcelId, WorkerId } from "../../model/ids.js";
import { rangesOf } from "../../model/ranges.js";
import type { Epoch, HeldParcel, Parcel } from "../../model/store.js";
import type { Database } from "./database.js";

export const PARCEL_COLUMNS =
  "id, job, first, last, attempt, failures, crashes, not_before AS notBefore, avoid, worker";

export interface ParcelRow {
  readonly id: ParcelId;
  readonly job: JobId;
  readonly first: number;
  readonly last: number;
  readonly attempt: number;
  readonly failures: number;
  readonly crashes: number;
  readonly notBefore: number;
  readonly avoid: WorkerId | null;
  readonly worker: WorkerId | null;
}

export function parcelFrom({ avoid, worker, ...row }: ParcelRow): Parcel {
  return { ...row, ...(avoid === null ? {} : { avoid }), ...(worker === null ? {} : { worker }) };
}

const INSERT = `
INSERT INTO parcel (id, job, first, last, attempt, failures, crashes, not_before, avoid, worker, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

export type InsertParcel = (parcel: Parcel, epoch: Epoch) => void;

export function prepareInsertParcel(db: Database): InsertParcel {
  const insert = db.prepare(INSERT);
  return (parcel, epoch) => {
    const { id, job, first, last, attempt, failures, crashes, notBefore, avoid, worker } = parcel;
    insert.run(id, job, first, last, attempt, failures, crashes, notBefore, avoid ?? null, worker ?? null, epoch);
  };
}

/** Tasks that were never handed out, from a job's cursor. */
export const freshParcel = (id: ParcelId, job: JobId, first: number, last: number): Parcel => ({
  id,
  job,
  first,
  last,
  attempt: 0,
  failures: 0,
  crashes: 0,
  notBefore: 0,
});

const SETTLED = "SELECT idx FROM result WHERE job = ? AND idx BETWEEN ? AND ? ORDER BY idx";

/** Says which tasks of a parcel have a result already. */
export function prepareHeldParcel(db: Database): (row: ParcelRow) => HeldParcel {
  const settled = db.prepare(SETTLED);
  return (row) => {
    const rows: { idx: number }[] = settled.all(row.job, row.first, row.last);
    return { parcel: parcelFrom(row), settled: rangesOf(rows.map(({ idx }) => idx)) };
  };
}
