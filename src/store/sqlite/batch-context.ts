import type { Epoch } from "../../model/store.js";
import type { WriteResultRow, WriteRow } from "./messages.js";

/** What every write of one batch shares. */
export interface BatchContext {
  readonly epoch: Epoch;
  readonly now: number;
}

/** One kind of write, with its statements prepared. */
export type Operation<Op extends WriteRow["op"]> = (
  write: Extract<WriteRow, { op: Op }>,
  batch: BatchContext,
) => Extract<WriteResultRow, { op: Op }>;
