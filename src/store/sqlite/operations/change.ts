/** Changes of a whole job: cancel, hold, remove; and `edit`. */
import type { JobId, TaskRangeId } from "../../../model/ids.js";
import type { JobChanges } from "../../../model/job.js";
import {
  contains,
  difference,
  intersection,
  normalize,
  type Range,
  type Ranges,
  union,
} from "../../../model/ranges.js";
import { editRefusal } from "../../../model/store.js";
import type { Database } from "../database.js";
import type { JobCounters, JobTable } from "../job-table.js";
import type { OutputTable } from "../output-table.js";
import type { Operation } from "./index.js";
import { prepareTrim } from "./lease.js";

const FIND = "SELECT count, cursor, cancels, open FROM job WHERE id = ?";
const CANCEL =
  "UPDATE job SET cancels = ?, cancel_reason = coalesce(?, cancel_reason), cursor = ?, open = ? WHERE id = ?";
const UNOWNED = "SELECT id, first, last FROM task_range WHERE job = ? AND epoch IS NULL";
const CLAIMED = "SELECT first, last FROM task_range WHERE job = ? AND worker IS NOT NULL ORDER BY first";
const NOTHING = { succeeded: 0, failed: 0, cancelled: 0 };

export function prepareCancel(db: Database, jobCounters: JobCounters): Operation<"cancel"> {
  const find = db.prepare(FIND);
  const cancel = db.prepare(CANCEL);
  const unowned = db.prepare(UNOWNED);
  const claimed = db.prepare(CLAIMED);
  const trim = prepareTrim(db);
  return ({ op, job, ranges, reason, unclaimed }) => {
    const before = jobCounters.add(job, NOTHING);
    const row: { count: number; cursor: number; cancels: string; open: number } | undefined = find.get(job);
    if (before === undefined || row === undefined) return { op };
    if (before.ended !== undefined) return { op, progress: before };
    const { count, cursor } = row;
    const stored: Ranges = JSON.parse(row.cancels);
    const left: Ranges = unclaimed === true ? normalize(claimed.all(job) as Range[]) : [];
    const asked = normalize(ranges);
    const added = intersection({ first: 0, last: count - 1 }, asked).flatMap((range) => difference(range, left));
    const open = row.open === 1 && !contains(asked, count);
    const cancels = union(stored, added);
    const beyond = difference({ first: cursor, last: count - 1 }, cancels).length === 0 ? count - cursor : 0;
    const text = JSON.stringify(cancels);
    cancel.run(text, reason ?? null, cursor + beyond, open ? 1 : 0, job);
    jobCounters.setCancels(job, text);
    jobCounters.resize(job, count, open);
    const free: (Range & { id: TaskRangeId })[] = unowned.all(job);
    const trimmed = free.reduce((sum, taskRange) => sum + trim(taskRange, cancels), 0);
    const progress = jobCounters.add(job, { ...NOTHING, cancelled: beyond + trimmed });
    return progress === undefined ? { op } : { op, progress };
  };
}

const HOLD = "UPDATE job SET held = ? WHERE id = ?";

export function prepareHold(db: Database): Operation<"hold"> {
  const hold = db.prepare(HOLD);
  return ({ op, job, held }) => ({ op, found: hold.run(held ? 1 : 0, job).changes > 0 });
}

/** The order in which rows are deleted, and how much one counts: a chunk of entries is large. */
const TABLES = [
  { table: "result", order: "idx", cost: 1 },
  { table: "earlier_attempt", order: "idx", cost: 1 },
  { table: "output", order: "idx", cost: 1 },
  { table: "entry_chunk", order: "first", cost: 100 },
] as const;

const removeFirst = ({ table, order }: (typeof TABLES)[number]): string => `
DELETE FROM ${table} WHERE job = ?1 AND ${order} <= (
  SELECT max(${order}) FROM (SELECT ${order} FROM ${table} WHERE job = ?1 ORDER BY ${order} LIMIT ?2))`;

export function prepareRemove(db: Database, jobCounters: JobCounters, output: OutputTable): Operation<"remove"> {
  const removals = TABLES.map((table) => ({ statement: db.prepare(removeFirst(table)), cost: table.cost }));
  const removeTaskRanges = db.prepare("DELETE FROM task_range WHERE job = ?");
  const removeJob = db.prepare("DELETE FROM job WHERE id = ?");
  return ({ op, job }, batch) => {
    if (jobCounters.add(job, NOTHING)?.ended === undefined) return { op, removed: false };
    for (const { statement, cost } of removals) {
      const max = Math.floor(batch.mayRemove / cost);
      const { changes } = statement.run(job, max);
      batch.mayRemove -= changes * cost;
      if (changes >= max) return { op, removed: false, more: true };
    }
    removeTaskRanges.run(job);
    removeJob.run(job);
    output.remove(job);
    jobCounters.remove(job);
    return { op, removed: true };
  };
}

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
