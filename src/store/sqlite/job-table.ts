/**
 * Tables of jobs and entries.
 *
 * The counters of jobs during a batch. A batch settles the same few jobs thousands of times, so a job's counters are
 * written once, before the commit. Those of open jobs are kept for later batches: nobody else writes to the database.
 */
import { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, type JobEnd, jobEnd } from "../../model/job.js";
import { NO_RANGES, type Range, type Ranges } from "../../model/ranges.js";
import type { EntryChunk, Progress } from "../../model/store.js";
import type { JobFilter, NextDelayed } from "../../model/store-reads.js";
import { checkPattern, isOnlyOpen, OPEN_CONDITIONS, type States } from "../job-rows.js";
import type { Database, Statement } from "./database.js";
import type { JobRow } from "./thread-calls.js";

const COLUMNS = `
id, created, spec, has_entries AS hasEntries, held, cursor, cancels, cancel_reason AS reason, succeeded, failed,
  cancelled,
ended_at AS endedAt, ended_state AS endedState, not_before AS notBefore, count, open, changes`;
const ONE = `SELECT ${COLUMNS} FROM job WHERE id = ?`;
export const pageOfJobs = (conditions: readonly string[]): string =>
  `SELECT ${COLUMNS} FROM job WHERE ${["id < ?", ...conditions].join(" AND ")} ORDER BY id DESC LIMIT ?`;
const OPEN = `SELECT ${COLUMNS} FROM job WHERE ended_at IS NULL AND not_before IS NULL ORDER BY id`;
export const NEXT_DELAYED = `
SELECT not_before AS at FROM job WHERE ended_at IS NULL AND not_before IS NOT NULL AND relative = ? ORDER BY not_before
  LIMIT 1`;
const DELAYED_COUNT = "SELECT count(*) AS count FROM job WHERE ended_at IS NULL AND not_before IS NOT NULL";
const ENTRIES = `
SELECT first, last, bytes FROM entry_chunk
WHERE job = ?1 AND first <= ?3
  AND first >= (SELECT max(first) FROM entry_chunk WHERE job = ?1 AND first <= ?2)
ORDER BY first`;

/** Whether this number was given to a job that is gone. False for a number that was never given. */
const WAS_REMOVED = `
SELECT 1 WHERE ?1 <= (SELECT seq FROM sqlite_sequence WHERE name = 'job')
  AND NOT EXISTS (SELECT 1 FROM job WHERE id = ?1)`;

const LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'job'";

export class JobTable {
  readonly #last: Statement;
  readonly #db: Database;
  readonly #one: Statement;
  /** By conditions; there are few different ones. */
  readonly #pages = new Map<string, Statement>();
  readonly #open: Statement;
  readonly #entries: Statement;
  readonly #wasRemoved: Statement;
  readonly #nextDelayed: Statement;
  readonly #delayedCount: Statement;

  constructor(db: Database) {
    this.#last = db.prepare(LAST);
    this.#db = db;
    this.#one = db.prepare(ONE);
    this.#open = db.prepare(OPEN);
    this.#entries = db.prepare(ENTRIES);
    this.#wasRemoved = db.prepare(WAS_REMOVED);
    this.#nextDelayed = db.prepare(NEXT_DELAYED);
    this.#delayedCount = db.prepare(DELAYED_COUNT);
  }

  find(id: JobId): JobRow | undefined {
    return this.#one.get(id);
  }

  /** The number after the last that was ever given. */
  next(): JobId {
    const row: { seq: number } | undefined = this.#last.get();
    return JobId((row?.seq ?? 0) + 1);
  }

  /** Numbers up to this one are not used again. */
  skipTo(id: number): void {
    const last = Math.max(id, this.next() - 1);
    this.#db.exec(
      `DELETE FROM sqlite_sequence WHERE name = 'job'; INSERT INTO sqlite_sequence VALUES ('job', ${last})`,
    );
  }

  delayedCount(): number {
    const { count }: { count: number } = this.#delayedCount.get();
    return count;
  }

  nextDelayed(): NextDelayed {
    const [clock, steady] = [0, 1].map((relative) => this.#nextDelayed.get(relative) as { at: number } | undefined);
    return { ...(clock && { clock: clock.at }), ...(steady && { steady: steady.at }) };
  }

  /** Newest first. */
  page(before: JobId | undefined, limit: number, filter: JobFilter = {}): JobRow[] {
    const found = conditionsOf(filter).map((conditions): JobRow[] => {
      const values = conditions.flatMap(({ value }) => (value === undefined ? [] : [value].flat()));
      const page = this.#pageWhere(conditions.map(({ sql }) => sql));
      return page.all(before ?? Number.MAX_SAFE_INTEGER, ...values, limit);
    });
    const [all = []] = found;
    if (found.length < 2) return all;
    return found
      .flat()
      .sort((a, b) => b.id - a.id)
      .slice(0, limit);
  }

  openJobs(): JobRow[] {
    return this.#open.all();
  }

  /** The chunks in which the entries of these tasks lie. */
  entries(job: JobId, range: Range): EntryChunk[] {
    return this.#entries.all(job, range.first, range.last);
  }

  wasRemoved(id: JobId): boolean {
    return this.#wasRemoved.get(id) !== undefined;
  }

  #pageWhere(conditions: readonly string[]): Statement {
    const sql = pageOfJobs(conditions);
    const page = this.#pages.get(sql) ?? this.#db.prepare(sql);
    this.#pages.set(sql, page);
    return page;
  }
}

/** The conditions of a filter on jobs, with their values. */
interface Condition {
  readonly sql: string;
  readonly value?: string | number;
}

/** Each list is for its own query. Together they find everything that matches, and nothing twice. */
export function conditionsOf(filter: JobFilter): Condition[][] {
  const { states, name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore, endedBefore } = filter;
  const conditions: Condition[] = [];
  const add = (sql: string, value: string | number | undefined): void => {
    if (value !== undefined) conditions.push({ sql, value });
  };
  if (states !== undefined && !isOnlyOpen(states)) conditions.push(stateCondition(states));
  if (name !== undefined) add(name.includes("*") ? "name GLOB ?" : "name = ?", name.includes("*") ? glob(name) : name);
  add("pool = ?", pool);
  add("key = ?", key);
  add("batch_key = ?", batchKey);
  add("idempotency_key = ?", idempotencyKey);
  add("created >= ?", createdFrom);
  add("created < ?", createdBefore);
  add("ended_at < ?", endedBefore);
  if (states !== undefined && isOnlyOpen(states)) return OPEN_CONDITIONS.map((sql) => [{ sql }, ...conditions]);
  return [conditions];
}

function stateCondition(states: States): Condition {
  return {
    sql: "coalesce(ended_state, 'open') IN (SELECT value FROM json_each(?))",
    value: JSON.stringify(states),
  };
}

/** In GLOB a question mark and a bracket are special; inside brackets they are literal. */
function glob(pattern: string): string {
  checkPattern(pattern);
  return pattern.replace(/[?[]/g, "[$&]");
}

/** Ended jobs that are kept no longer. */
const KEEP = "CASE ended_state WHEN 'succeeded' THEN keep_ms ELSE keep_failed_ms END";
const NO_KEY = "(has_key = 0 OR ended_at + coalesce(key_for_ms, 0) <= ?1)";
export const OWN_KEEP_OVER = `
SELECT id FROM job
WHERE ended_at IS NOT NULL AND keep_failed_ms IS NOT NULL AND ended_at + ${KEEP} <= ?1 AND ${NO_KEY}
ORDER BY ended_at + ${KEEP} LIMIT ?2`;
/** For jobs of one state without their own time. */
export const KEEP_OVER = `
SELECT id FROM job
WHERE ended_at IS NOT NULL AND ended_state = ?3 AND ended_at <= ?1 - ?4 AND ${KEEP} IS NULL AND ${NO_KEY}
ORDER BY ended_at LIMIT ?2`;

type ExpiredJobs = (now: number, keep: { keepMs?: number; keepFailedMs?: number }, limit: number) => JobId[];

export function prepareExpiredJobs(db: Database): ExpiredJobs {
  const ownKeepOver = db.prepare(OWN_KEEP_OVER);
  const keepOver = db.prepare(KEEP_OVER);
  return (now, { keepMs, keepFailedMs = keepMs }, limit) => {
    const rows: { id: JobId }[] = ownKeepOver.all(now, limit);
    for (const [state, keep] of [
      ["succeeded", keepMs] as const,
      ...UNSUCCESSFUL.map((end) => [end, keepFailedMs] as const),
    ])
      if (keep !== undefined && rows.length < limit) rows.push(...keepOver.all(now, limit - rows.length, state, keep));
    return rows.map(({ id }) => id);
  };
}

const UNSUCCESSFUL = ["failed", "cancelled"] as const;

const READ = "SELECT count, succeeded, failed, cancelled, ended_state AS ended, cancels, open FROM job WHERE id = ?";
const WRITE = `
UPDATE job
SET succeeded = ?, failed = ?, cancelled = ?, ended_state = ?, ended_at = coalesce(ended_at, ?)
WHERE id = ?`;

/** The column's value if nothing was cancelled. */
const NONE = "[]";
/** Open jobs whose counters are kept between batches. */
const MAX_KEPT = 10_000;

interface CounterRow {
  count: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  ended: JobEnd | null;
  cancels: string;
  /** 1 while it takes more tasks. Such a job does not end. */
  open: number;
}

export class JobCounters {
  readonly #read: Statement;
  readonly #write: Statement;
  /** Those that this batch has used. */
  readonly #rows = new Map<JobId, CounterRow>();
  /** Those of open jobs. */
  readonly #kept = new Map<JobId, CounterRow>();
  readonly #endedInBatch: JobId[] = [];

  constructor(db: Database) {
    this.#read = db.prepare(READ);
    this.#write = db.prepare(WRITE);
  }

  /** The batch has inserted this job. */
  inserted(job: JobId, count: number, open: boolean): void {
    const counters = { succeeded: 0, failed: 0, cancelled: 0 };
    this.#kept.set(job, { count, ...counters, ended: null, cancels: NONE, open: open ? 1 : 0 });
  }

  /** Adds finished tasks; the job ends with the last of them. */
  add(job: JobId, more: Counters): Progress | undefined {
    const row = this.#row(job);
    if (row === undefined) return undefined;
    row.succeeded += more.succeeded;
    row.failed += more.failed;
    row.cancelled += more.cancelled;
    if (row.ended === null && row.open === 0 && finishedCount(row) >= row.count) {
      row.ended = jobEnd(row);
      this.#endedInBatch.push(job);
    }
    const { succeeded, failed, cancelled, ended } = row;
    const counters = { succeeded, failed, cancelled };
    return ended === null ? { counters } : { counters, ended };
  }

  /** The ranges with a cancel request, up to this write of the batch. */
  cancelsOf(job: JobId): Ranges {
    const cancels = this.#row(job)?.cancels ?? NONE;
    return cancels === NONE ? NO_RANGES : JSON.parse(cancels);
  }

  setCancels(job: JobId, cancels: string): void {
    const row = this.#row(job);
    if (row !== undefined) row.cancels = cancels;
  }

  size(job: JobId): { readonly count: number; readonly open: boolean; readonly ended: boolean } | undefined {
    const row = this.#row(job);
    return row && { count: row.count, open: row.open === 1, ended: row.ended !== null };
  }

  resize(job: JobId, count: number, open: boolean): void {
    const row = this.#row(job);
    if (row === undefined) return;
    row.count = count;
    row.open = open ? 1 : 0;
  }

  /** Subtracts tasks that run again. Returns whether the job had ended within this batch; now it is open. */
  reopen(job: JobId, less: Counters, cancels: string): boolean {
    const row = this.#row(job);
    if (row === undefined) return false;
    row.succeeded -= less.succeeded;
    row.failed -= less.failed;
    row.cancelled -= less.cancelled;
    row.ended = null;
    row.cancels = cancels;
    return this.#dropFromEnded(job);
  }

  /** The job is no longer there. */
  remove(job: JobId): void {
    this.#rows.delete(job);
    this.#kept.delete(job);
    this.#dropFromEnded(job);
  }

  get endedInBatch(): readonly JobId[] {
    return this.#endedInBatch;
  }

  write(now: number): void {
    for (const [job, row] of this.#rows) this.#writeRow(job, row, now);
  }

  /** Writes one job early, because its row is about to be read. */
  writeOne(job: JobId, now: number): void {
    const row = this.#rows.get(job);
    if (row !== undefined) this.#writeRow(job, row, now);
  }

  afterCommit(): void {
    for (const [job, row] of this.#rows) {
      if (row.ended === null) this.#kept.set(job, row);
      else this.#kept.delete(job);
    }
    this.#clear();
    if (this.#kept.size > MAX_KEPT) this.#kept.clear();
  }

  afterRollback(): void {
    this.#kept.clear();
    this.#clear();
  }

  #clear(): void {
    this.#rows.clear();
    this.#endedInBatch.length = 0;
  }

  #writeRow(job: JobId, { succeeded, failed, cancelled, ended }: CounterRow, now: number): void {
    this.#write.run(succeeded, failed, cancelled, ended, ended === null ? null : now, job);
  }

  #dropFromEnded(job: JobId): boolean {
    const at = this.#endedInBatch.indexOf(job);
    if (at >= 0) this.#endedInBatch.splice(at, 1);
    return at >= 0;
  }

  #row(job: JobId): CounterRow | undefined {
    const known = this.#rows.get(job);
    if (known !== undefined) return known;
    const row: CounterRow | undefined = this.#kept.get(job) ?? this.#read.get(job);
    if (row !== undefined) this.#rows.set(job, row);
    return row;
  }
}
