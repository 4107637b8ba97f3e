/** New jobs, and which of them has a key. */
import { JobId } from "../../../model/ids.js";
import { ALL_TASKS } from "../../../model/ranges.js";
import { freshTaskRange } from "../../rows.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-table.js";
import type { SubmittedRanges } from "../task-range-table.js";
import type { SubmitRow, SubmittedRow, WriteResultRow } from "../thread-calls.js";
import type { BatchContext, Operation } from "./index.js";

/** Which job has a key now. One that has ended keeps it until its time is over and another job asks for it. */
const HOLDER = "SELECT id, ended_at AS endedAt, key_for_ms AS keyForMs FROM job WHERE key = ? AND has_key = 1";
const SET = "UPDATE job SET has_key = ? WHERE id = ?";
const NOTHING = { succeeded: 0, failed: 0, cancelled: 0 };

interface JobKeys {
  holder(key: string, now: number): JobId | undefined;
  setHolder(job: JobId, has: boolean): void;
}

export function prepareJobKeys(db: Database, jobCounters: JobCounters): JobKeys {
  const find = db.prepare(HOLDER);
  const set = db.prepare(SET);
  const setHolder = (job: JobId, has: boolean): void => void set.run(has ? 1 : 0, job);
  return {
    setHolder,
    holder: (key, now) => {
      const row: { id: JobId; endedAt: number | null; keyForMs: number | null } | undefined = find.get(key);
      if (row === undefined) return undefined;
      // It may have ended within this batch.
      const ended = jobCounters.add(row.id, NOTHING)?.ended !== undefined;
      if (!ended || (row.endedAt ?? now) + (row.keyForMs ?? 0) > now) return row.id;
      setHolder(row.id, false);
      return undefined;
    },
  };
}

const JOB = `
INSERT INTO job (id, created, spec, name, pool, batch_key, idempotency_key, count, has_entries, held, cursor,
  key, has_key, key_for_ms, not_before, relative, keep_ms, keep_failed_ms, open)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;
const FIRST = "SELECT id FROM job WHERE idempotency_key = ?";
const CHUNK = "INSERT INTO entry_chunk (job, first, last, bytes) VALUES (?, ?, ?, ?)";

export function prepareSubmit(
  db: Database,
  jobCounters: JobCounters,
  submittedRanges: SubmittedRanges,
  cancel: Operation<"cancel">,
): (write: SubmitRow, batch: BatchContext) => WriteResultRow {
  const insertJob = db.prepare(JOB);
  const first = db.prepare(FIRST);
  const insertChunk = db.prepare(CHUNK);
  const keys = prepareJobKeys(db, jobCounters);
  const replace = (job: JobId, by: JobId, batch: BatchContext): NonNullable<SubmittedRow["replaced"]> => {
    submittedRanges.write(batch.epoch);
    const { progress } = cancel({ op: "cancel", job, ranges: [ALL_TASKS], reason: `replaced by job ${by}` }, batch);
    return progress === undefined ? { job } : { job, progress };
  };
  return (write, batch) => {
    const { now } = batch;
    const { op, spec, name, pool, batchKey, idempotencyKey, count, held, chunks, key, ifExists } = write;
    const before: { id: JobId } | undefined = idempotencyKey === null ? undefined : first.get(idempotencyKey);
    if (before !== undefined) return { op: "duplicate", job: before.id };
    const holder = key === null ? undefined : keys.holder(key, now);
    if (holder !== undefined) {
      if (ifExists !== "replace") return { op: "duplicate", job: holder, byKey: true };
      keys.setHolder(holder, false);
    }
    const granted = Math.max(0, Math.min(write.lease, count));
    const entries = chunks === undefined ? 0 : 1;
    const columns = [spec, name, pool, batchKey, idempotencyKey, count, entries, held ? 1 : 0, granted];
    const times = [
      write.keyForMs,
      write.notBefore,
      write.relative ? 1 : 0,
      write.keepMs,
      write.keepFailedMs,
      write.open ? 1 : 0,
    ];
    // Not RETURNING, which takes as long as most of the insert.
    const inserted = insertJob.run(write.id ?? null, now, ...columns, key, key === null ? 0 : 1, ...times);
    const id = JobId(Number(inserted.lastInsertRowid));
    for (const { first, last, bytes } of chunks ?? []) insertChunk.run(id, first, last, bytes);
    jobCounters.inserted(id, count, write.open);
    // A job without tasks has ended with its submission.
    if (count === 0 && !write.open) jobCounters.add(id, { succeeded: 0, failed: 0, cancelled: 0 });
    const replaced = holder === undefined ? undefined : replace(holder, id, batch);
    if (granted > 0) submittedRanges.add(freshTaskRange(write.rangeId, id, 0, granted - 1), chunks !== undefined);
    return replaced === undefined ? { op, id, granted } : { op, id, granted, replaced };
  };
}
