/** A job's spec as stored: one MessagePack value, which may hold bytes where JSON could not. */
import { pack, unpack } from "msgpackr";
import { currentSpec, isParked, type Job, type JobSpec, newJob } from "../../model/job.js";
import type { Write } from "../../model/store.js";
import { chunkEntries } from "../entry-chunks.js";
import { encodeSchedule } from "../schedule-rows.js";
import type { EditRow, JobRow, SubmitRow, SubmittedRow, WriteRow } from "./messages.js";

function encodeSpec(spec: JobSpec): Uint8Array {
  // A copy of its own: pack() gives a view of a shared buffer, all of which a clone would carry along.
  return new Uint8Array(pack(spec));
}

export function submitRow(write: Extract<Write, { op: "submit" }>): SubmitRow {
  const { op, id, job, lease, rangeId } = write;
  const { name, count, held, batchKey = null, idempotencyKey = null } = job;
  const { pool } = job.requirement;
  const numbered = id === undefined ? {} : { id };
  const { key = null, keyForMs = null, ifExists = "return", keepMs = null, keepFailedMs = keepMs } = job;
  const row = {
    ...{ op, ...numbered, spec: encodeSpec(job), name, pool, batchKey, idempotencyKey, count, held, lease, rangeId },
    ...{ key, keyForMs, ifExists, keepMs, keepFailedMs, open: job.open === true },
    notBefore: isParked(job) ? (job.notBefore ?? null) : null,
    relative: job.delayMs !== undefined,
  };
  return write.entries === undefined ? row : { ...row, chunks: chunkEntries(write.entries) };
}

export function editRow({ append, ...write }: Extract<Write, { op: "edit" }>): EditRow {
  if (append === undefined) return write;
  const { entries, ...places } = append;
  return { ...write, append: { ...places, ...(entries === undefined ? {} : { chunks: chunkEntries(entries) }) } };
}

export function scheduleRow({
  op,
  changes,
}: Extract<Write, { op: "schedule" }>): Extract<WriteRow, { op: "schedule" }> {
  return {
    op,
    changes: changes.map(({ name, expected, next, writes }) => ({
      name,
      expected,
      ...(next === undefined
        ? {}
        : {
            next: {
              revision: next.revision,
              nextAt: next.nextAt ?? null,
              spec: next.spec === undefined ? null : encodeSchedule(next.spec),
              state: JSON.stringify(next.state),
            },
          }),
      writes: writes.map((write) => (write.op === "submit" ? submitRow(write) : write)),
    })),
  };
}

export function jobFrom(row: JobRow): Job {
  const spec: JobSpec = unpack(row.spec);
  const { count, open, changes } = row;
  return {
    ...currentSpec(spec, { count, open: open === 1, changes: changes === null ? null : JSON.parse(changes) }),
    id: row.id,
    created: row.created,
    held: row.held === 1,
    hasEntries: row.hasEntries === 1,
    cursor: row.cursor,
    cancels: JSON.parse(row.cancels),
    ...(row.reason === null ? {} : { reason: row.reason }),
    counters: { succeeded: row.succeeded, failed: row.failed, cancelled: row.cancelled },
    ...(row.notBefore === null || row.endedAt !== null ? {} : { delayed: true }),
    ...(row.endedAt === null || row.endedState === null ? {} : { ended: { at: row.endedAt, state: row.endedState } }),
  };
}

/** The job that a submission has become. */
export const submittedJob = (write: Extract<Write, { op: "submit" }>, row: SubmittedRow, now: number): Job =>
  newJob(write.job, row.id, write.entries !== undefined, row.taskRange === undefined ? 0 : row.taskRange.last + 1, now);
