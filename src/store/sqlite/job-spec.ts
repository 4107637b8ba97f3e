/** A job's spec as stored: one MessagePack value, which may hold bytes where JSON could not. */
import { pack, unpack } from "msgpackr";
import { type Job, type JobSpec, newJob } from "../../model/job.js";
import type { Write } from "../../model/store.js";
import { chunkEntries } from "../entry-chunks.js";
import type { JobRow, SubmitRow, SubmittedRow } from "./messages.js";

function encodeSpec(spec: JobSpec): Uint8Array {
  // A copy of its own: pack() gives a view of a shared buffer, all of which a clone would carry along.
  return new Uint8Array(pack(spec));
}

export function submitRow(write: Extract<Write, { op: "submit" }>): SubmitRow {
  const { op, id, job, lease, rangeId } = write;
  const { name, count, held, key = null, idempotencyKey = null } = job;
  const { pool } = job.requirement;
  const numbered = id === undefined ? {} : { id };
  const row = { op, ...numbered, spec: encodeSpec(job), name, pool, key, idempotencyKey, count, held, lease, rangeId };
  return write.entries === undefined ? row : { ...row, chunks: chunkEntries(write.entries) };
}

export function jobFrom(row: JobRow): Job {
  const spec: JobSpec = unpack(row.spec);
  return {
    ...spec,
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
  newJob(write.job, row.id, write.entries !== undefined, row.taskRange === undefined ? 0 : row.taskRange.last + 1, now);
