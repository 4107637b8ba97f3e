/**
 * The counters of jobs during a batch. A batch settles the same few jobs thousands of times, so a job's counters are
 * read once and written once, before the commit.
 */
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, type JobEnd, jobEnd } from "../../model/job.js";
import { NO_RANGES, type Ranges } from "../../model/ranges.js";
import type { Progress } from "../../model/store.js";
import type { Database, Statement } from "./database.js";

const READ = "SELECT count, succeeded, failed, cancelled, ended_state AS ended, cancels, open FROM job WHERE id = ?";
const WRITE = `
UPDATE job
SET succeeded = ?, failed = ?, cancelled = ?, ended_state = ?, ended_at = coalesce(ended_at, ?)
WHERE id = ?`;

/** How the column says that nothing was. */
const NONE = "[]";

interface CounterRow {
  count: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  ended: JobEnd | null;
  cancels: string;
  /** 1 while it takes more tasks: then it does not end. */
  open: number;
}

export class JobCounters {
  readonly #read: Statement;
  readonly #write: Statement;
  readonly #rows = new Map<JobId, CounterRow>();
  readonly #endedInBatch: JobId[] = [];

  constructor(db: Database) {
    this.#read = db.prepare(READ);
    this.#write = db.prepare(WRITE);
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

  /** What of the job was asked to be cancelled, up to this write of the batch. */
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

  /** Takes finished tasks back. Says whether the job had ended, and is open now, within this batch. */
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
    this.#dropFromEnded(job);
  }

  /** The jobs that this batch has ended so far. */
  get endedInBatch(): readonly JobId[] {
    return this.#endedInBatch;
  }

  write(now: number): void {
    for (const [job, row] of this.#rows) this.#writeRow(job, row, now);
  }

  /** Writes one job before the others, for its row to be read. */
  writeOne(job: JobId, now: number): void {
    const row = this.#rows.get(job);
    if (row !== undefined) this.#writeRow(job, row, now);
  }

  /** For the next batch, whether this one succeeded or not. */
  clear(): void {
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
    const row: CounterRow | undefined = this.#read.get(job);
    if (row !== undefined) this.#rows.set(job, row);
    return row;
  }
}
