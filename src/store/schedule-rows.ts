/** Schedules as rows, in both engines: the spec as MessagePack, because its job may hold bytes; the state as JSON. */
import { pack, unpack } from "msgpackr";
import type { JobId } from "../model/ids.js";
import type { Schedule, ScheduleSpec } from "../model/schedule.js";
import type { WriteResult } from "../model/store.js";

export interface ScheduleRow {
  readonly name: string;
  readonly revision: number;
  readonly nextAt: number | null;
  readonly spec: Uint8Array;
  readonly state: string;
  readonly lastJob: JobId | null;
  readonly formerJob: JobId | null;
}

/** A copy, because pack() returns a view of a shared buffer. */
export const encodeSchedule = (spec: ScheduleSpec): Uint8Array => new Uint8Array(pack(spec));

export const scheduleFrom = ({ name, revision, nextAt, spec, state, lastJob, formerJob }: ScheduleRow): Schedule => ({
  name,
  revision,
  ...(nextAt === null ? {} : { nextAt }),
  // From a Buffer the bytes in it would come as Buffers.
  spec: unpack(new Uint8Array(spec)),
  state: JSON.parse(state),
  ...(lastJob === null ? {} : { lastJob }),
  ...(formerJob === null ? {} : { formerJob }),
});

/** The job of a run, whether it was made now or before. */
export function jobOfRun(result: WriteResult | undefined): JobId | undefined {
  if (result?.op === "submit") return result.job.id;
  return result?.op === "duplicate" ? result.job : undefined;
}
