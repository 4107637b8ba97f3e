/**
 * The counters of jobs during a batch. A batch settles the same few jobs thousands of times, so a job's counters are read at
 * the first of these and written once, before the commit.
 */
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, type JobEnd, jobEnd } from "../../model/job.js";
import { NO_RANGES, type Ranges } from "../../model/ranges.js";
import type { Progress } from "../../model/store.js";
import type { Database, Statement } from "./database.js";

const READ = "SELECT count, succeeded, failed, cancelled, ended_state AS ended, cancels FROM job WHERE id = ?";
const WRITE = `
UPDATE job
SET succeeded = ?, failed = ?, cancelled = ?, ended_state = ?, ended_at = coalesce(ended_at, ?)
WHERE id = ?`;

/** How the column says that nothing was. */
const NONE = "[]";

interface Line {
  readonly count: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  ended: JobEnd | null;
  cancels: string;
}

export class JobLedger {
  readonly #read: Statement;
  readonly #write: Statement;
  readonly #lines = new Map<JobId, Line>();
  readonly #endedNow: JobId[] = [];

  constructor(db: Database) {
    this.#read = db.prepare(READ);
    this.#write = db.prepare(WRITE);
  }

  /** Adds finished tasks; the job ends with the last of them. */
  add(job: JobId, more: Counters): Progress | undefined {
    const line = this.#line(job);
    if (line === undefined) return undefined;
    line.succeeded += more.succeeded;
    line.failed += more.failed;
    line.cancelled += more.cancelled;
    if (line.ended === null && finishedCount(line) >= line.count) {
      line.ended = jobEnd(line);
      this.#endedNow.push(job);
    }
    const { succeeded, failed, cancelled, ended } = line;
    const counters = { succeeded, failed, cancelled };
    return ended === null ? { counters } : { counters, ended };
  }

  /** What of the job was asked to be cancelled, up to this write of the batch. */
  cancelsOf(job: JobId): Ranges {
    const cancels = this.#line(job)?.cancels ?? NONE;
    return cancels === NONE ? NO_RANGES : JSON.parse(cancels);
  }

  cancelled(job: JobId, cancels: string): void {
    const line = this.#line(job);
    if (line !== undefined) line.cancels = cancels;
  }

  /** Takes finished tasks back. Says whether the job had ended, and is open now, within this batch. */
  reopen(job: JobId, less: Counters, cancels: string): boolean {
    const line = this.#line(job);
    if (line === undefined) return false;
    line.succeeded -= less.succeeded;
    line.failed -= less.failed;
    line.cancelled -= less.cancelled;
    line.ended = null;
    line.cancels = cancels;
    return this.#notEndedNow(job);
  }

  /** The job is no longer there. */
  remove(job: JobId): void {
    this.#lines.delete(job);
    this.#notEndedNow(job);
  }

  /** The jobs that this batch has ended so far. */
  get endedNow(): readonly JobId[] {
    return this.#endedNow;
  }

  write(now: number): void {
    for (const [job, line] of this.#lines) this.#writeLine(job, line, now);
  }

  /** Writes one job before the others, for its row to be read. */
  writeOne(job: JobId, now: number): void {
    const line = this.#lines.get(job);
    if (line !== undefined) this.#writeLine(job, line, now);
  }

  /** For the next batch, whatever became of this one. */
  clear(): void {
    this.#lines.clear();
    this.#endedNow.length = 0;
  }

  #writeLine(job: JobId, { succeeded, failed, cancelled, ended }: Line, now: number): void {
    this.#write.run(succeeded, failed, cancelled, ended, ended === null ? null : now, job);
  }

  #notEndedNow(job: JobId): boolean {
    const at = this.#endedNow.indexOf(job);
    if (at >= 0) this.#endedNow.splice(at, 1);
    return at >= 0;
  }

  #line(job: JobId): Line | undefined {
    const known = this.#lines.get(job);
    if (known !== undefined) return known;
    const line: Line | undefined = this.#read.get(job);
    if (line !== undefined) this.#lines.set(job, line);
    return line;
  }
}
