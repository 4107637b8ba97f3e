import type { JobId } from "../../../model/ids.js";
import type { JobChanges } from "../../../model/job.js";
import { editRefusal } from "../../../model/store.js";
import type { Database } from "../database.js";
import type { JobCounters } from "../job-counters.js";
import type { JobTable } from "../job-table.js";
import type { Operation } from "./index.js";

const FIND_CHANGES = "SELECT changes FROM job WHERE id = ?";
const EDIT = "UPDATE job SET changes = ?, name = coalesce(?, name), count = ?, open = ? WHERE id = ?";
const CHUNK = "INSERT INTO entry_chunk (job, first, last, bytes) VALUES (?, ?, ?, ?)";

export function prepareEdit(db: Database, jobCounters: JobCounters, jobs: JobTable): Operation<"edit"> {
  const find = db.prepare(FIND_CHANGES);
  const edit = db.prepare(EDIT);
  const insertChunk = db.prepare(CHUNK);
  return (write, { now }) => {
    const { op, job, changes = {}, append, close } = write;
    const before = jobCounters.size(job);
    const row: { changes: string | null } | undefined = find.get(job);
    if (before === undefined || row === undefined) return { op };
    const refused = editRefusal(before, write);
    if (refused === undefined) {
      const all: JobChanges = { ...JSON.parse(row.changes ?? "{}"), ...changes };
      const count = before.count + (append?.count ?? 0);
      const open = before.open && close !== true;
      edit.run(JSON.stringify(all), changes.name ?? null, count, open ? 1 : 0, job);
      for (const { first, last, bytes } of append?.chunks ?? [])
        insertChunk.run(job, before.count + first, before.count + last, bytes);
      jobCounters.resize(job, count, open);
    }
    const progress = jobCounters.add(job, { succeeded: 0, failed: 0, cancelled: 0 });
    jobCounters.writeOne(job, now);
    const found = jobs.find(job);
    return {
      op,
      ...(found === undefined ? {} : { job: found }),
      ...(refused === undefined ? {} : { refused }),
      ...(progress?.ended === undefined ? {} : { progress }),
    };
  };
}

export const DUE = `
SELECT id FROM job WHERE ended_at IS NULL AND not_before IS NOT NULL AND relative = ? AND not_before <= ?
ORDER BY not_before, id LIMIT ?`;
const START = "UPDATE job SET not_before = NULL WHERE id = ?";

export function preparePromote(db: Database, jobCounters: JobCounters, jobs: JobTable): Operation<"promote"> {
  const due = db.prepare(DUE);
  const start = db.prepare(START);
  return ({ op, clock, steady, max }, { now }) => {
    // Jobs that end with this batch are not marked yet.
    jobCounters.write(now);
    const found: { id: JobId }[] = due.all(0, clock, max);
    if (found.length < max) found.push(...(due.all(1, steady, max - found.length) as { id: JobId }[]));
    const promoted = found.map(({ id }) => {
      start.run(id);
      return jobs.find(id);
    });
    return { op, jobs: promoted.filter((job) => job !== undefined) };
  };
}
