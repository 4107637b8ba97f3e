/** A job's request as stored: one MessagePack value, which may hold bytes where JSON could not. */
import { pack, unpack } from "msgpackr";
import { type Job, type JobRequest, newJob } from "../../model/job.js";
import type { Write } from "../../model/store.js";
import type { JobRow, SubmittedRow } from "./messages.js";

export function encodeRequest(request: JobRequest): Uint8Array {
  // A copy of its own: pack() gives a view of a shared buffer, all of which a clone would carry along.
  return new Uint8Array(pack(request));
}

export function jobFrom(row: JobRow): Job {
  const request: JobRequest = unpack(row.request);
  return {
    ...request,
    id: row.id,
    created: row.created,
    held: row.held === 1,
    hasEntries: row.hasEntries === 1,
    cursor: row.cursor,
    cancels: JSON.parse(row.cancels),
    ...(row.reason === null ? {} : { reason: row.reason }),
    counters: { succeeded: row.succeeded, failed: row.failed, cancelled: row.cancelled },
    ...(row.endedAt === null || row.endedState === null ? {} : { ended: { at: row.endedAt, state: row.endedState } }),
  };
}

/** The job that a submission has become. */
export const submittedJob = (write: Extract<Write, { op: "submit" }>, row: SubmittedRow, now: number): Job =>
  newJob(write.job, row.id, write.entries !== undefined, row.parcel === undefined ? 0 : row.parcel.last + 1, now);
