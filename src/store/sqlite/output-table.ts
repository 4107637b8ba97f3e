/**
 * Where the output of ended attempts is: in the row of the result if it is small, otherwise in segments. The segments
 * have the references of other attempts: the transaction that records the end of an attempt moves its reference to this
 * table.
 */
import type { Attempt, JobId, TaskIndex } from "../../model/ids.js";
import type { TaskResult } from "../../model/outcome.js";
import type { OutputOptions, OutputPage } from "../../model/store-reads.js";
import { isFileIndex } from "../../model/task-files.js";
import type { OutputSegments } from "../output/output-segments.js";
import { pageOfSmallOutput, type TaskRangeRow } from "../rows.js";
import type { Database, Statement } from "./database.js";
import type { TaskAttempt } from "./thread-calls.js";

const INSERT = "INSERT INTO output (job, idx, attempt, reference) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING";
const FIND = "SELECT reference FROM output WHERE job = ? AND idx = ? AND attempt = ?";
const FIND_SMALL = `
SELECT output FROM result WHERE job = ?1 AND idx = ?2 AND attempt = ?3 AND output IS NOT NULL
UNION ALL SELECT output FROM earlier_attempt WHERE job = ?1 AND idx = ?2 AND attempt = ?3 AND output IS NOT NULL`;
const LATEST = `
SELECT max(attempt) AS attempt FROM (
  SELECT attempt FROM output WHERE job = ?1 AND idx = ?2
  UNION ALL SELECT attempt FROM result WHERE job = ?1 AND idx = ?2 AND output IS NOT NULL
  UNION ALL SELECT attempt FROM earlier_attempt WHERE job = ?1 AND idx = ?2 AND output IS NOT NULL)`;

export class OutputTable {
  readonly #segments: OutputSegments;
  readonly #insert: Statement;
  readonly #find: Statement;
  readonly #findSmall: Statement;
  readonly #latest: Statement;
  /** Saved in this batch; the segments release them once it is durable. */
  readonly #savedInBatch: TaskAttempt[] = [];
  /** Removed in this batch. Their segments are removed when it is durable. */
  readonly #removed: JobId[] = [];

  constructor(db: Database, segments: OutputSegments) {
    this.#segments = segments;
    this.#insert = db.prepare(INSERT);
    this.#find = db.prepare(FIND);
    this.#findSmall = db.prepare(FIND_SMALL);
    this.#latest = db.prepare(LATEST);
  }

  /** Saves the references of the output of these ended attempts. */
  saveReferences(job: JobId, results: readonly TaskResult[]): void {
    for (const { index, attempt, outputBytes } of results)
      if (outputBytes > 0) this.#saveReference(job, index, attempt);
  }

  /** At a job's end: the rest are attempts that never ended, because their worker was lost. */
  saveUnended(job: JobId): void {
    for (const { index, attempt } of this.#segments.unreleased(job)) this.#saveReference(job, index, attempt);
  }

  /** Its references are gone. */
  remove(job: JobId): void {
    this.#removed.push(job);
  }

  /** Returns a log line for each job whose segments could not be removed; the next start tries again. */
  afterCommit(): string[] {
    for (const { job, index, attempt } of this.#savedInBatch) this.#segments.release(job, index, attempt);
    const lines = this.#removeSegments(this.#removed);
    this.afterRollback();
    return lines;
  }

  afterRollback(): void {
    this.#savedInBatch.length = 0;
    this.#removed.length = 0;
  }

  /** After a start: removes segments that were left when a broker died between a removal's commit and this. */
  removeOrphaned(wasRemoved: (job: JobId) => boolean): string[] {
    return this.#removeSegments(this.#segments.jobs().filter(wasRemoved));
  }

  /** After a start: finds the attempts of a job that may continue. Returns a log line for each damaged part. */
  recover(job: JobId): string[] {
    const damages = this.#segments.recover(job);
    for (const { index, attempt } of this.#segments.unreleased(job)) {
      if (this.#reference(job, index, attempt) !== undefined) this.#segments.release(job, index, attempt);
    }
    return damages.map(
      ({ segment, at, bytes, reason }) =>
        `output of job ${job}, segment ${segment}: ${bytes} bytes at ${at} are lost (${reason})`,
    );
  }

  /**
   * After `recover`: attempts beyond those of the task ranges come from a newer state of this store, which was restored
   * from a copy. Their numbers will be used again, so their output must not count. Files are known by their digests.
   */
  voidUnknown(job: JobId, cursor: number, taskRanges: readonly TaskRangeRow[]): void {
    const ranges = taskRanges.toSorted((a, b) => a.first - b.first);
    let at = 0;
    for (const { index, attempt } of this.#segments.unreleased(job).sort((a, b) => a.index - b.index)) {
      if (isFileIndex(index)) return;
      while ((ranges[at]?.last ?? index) < index) at++;
      const range = ranges[at];
      const known = range !== undefined && range.first <= index ? attempt <= range.attempt : index < cursor;
      if (!known) this.#segments.void(job, index, attempt);
    }
  }

  read(job: JobId, index: TaskIndex, { attempt, ...options }: OutputOptions): OutputPage {
    const of = { job, index, attempt: attempt ?? this.#latestOf(job, index) };
    const small: { output: Uint8Array } | undefined = this.#findSmall.get(job, index, of.attempt);
    if (small !== undefined) return pageOfSmallOutput(small.output, options);
    const reference = this.#reference(job, index, of.attempt);
    const { pieces, next } = this.#segments.read(reference === undefined ? of : { ...of, reference }, options);
    return next === undefined ? { pieces } : { pieces, next };
  }

  storedEnd({ job, index, attempt }: TaskAttempt): number {
    return this.#segments.storedEnd(job, index, attempt);
  }

  /** The attempts of a job that have output and have not ended. */
  unended(job: JobId): { readonly index: TaskIndex; readonly attempt: Attempt }[] {
    return this.#segments.unreleased(job);
  }

  #removeSegments(jobs: readonly JobId[]): string[] {
    const lines: string[] = [];
    for (const job of jobs) {
      try {
        this.#segments.remove(job);
      } catch (cause) {
        // The job itself is removed already. Only its bytes remain.
        lines.push(`output of job ${job} could not be removed: ${cause instanceof Error ? cause.message : cause}`);
      }
    }
    return lines;
  }

  #saveReference(job: JobId, index: TaskIndex, attempt: Attempt): void {
    const reference = this.#segments.reference(job, index, attempt);
    if (reference === undefined) return;
    this.#insert.run(job, index, attempt, reference);
    this.#savedInBatch.push({ job, index, attempt });
  }

  #reference(job: JobId, index: TaskIndex, attempt: Attempt): Uint8Array | undefined {
    const row: { reference: Uint8Array } | undefined = this.#find.get(job, index, attempt);
    return row?.reference;
  }

  #latestOf(job: JobId, index: TaskIndex): Attempt {
    const row: { attempt: number | null } | undefined = this.#latest.get(job, index);
    let latest = row?.attempt ?? 0;
    for (const live of this.#segments.unreleased(job)) {
      if (live.index === index && live.attempt > latest) latest = live.attempt;
    }
    return latest;
  }
}
