/** The store itself, synchronous, as it runs in its thread. It is opened once; every other call needs it open. */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { LaboroError } from "../../base/errors.js";
import type { JobId } from "../../model/ids.js";
import type { Epoch } from "../../model/store.js";
import type { KeyValue } from "../../model/store-reads.js";
import { OutputSegments, setAsideUnknownOutput } from "../output/output-segments.js";
import { REMOVED_IN_BATCH, type TaskRangeRow } from "../rows.js";
import { type Damage, keepDamaged, type LastCommit, LastCommitNote } from "./damage.js";
import { storeFailure } from "./data-directory.js";
import { type Database, inspectDatabase, openDatabase, type Statement } from "./database.js";
import { JobCounters, JobTable, prepareExpiredJobs } from "./job-table.js";
import { LimitStarts } from "./operations/claim.js";
import { type BatchContext, prepareOperations } from "./operations/index.js";
import { OutputTable } from "./output-table.js";
import { ResultTable, WorkerNames } from "./result-table.js";
import { ScheduleTable } from "./schedule-table.js";
import {
  prepareClaimedRange,
  prepareInsertTaskRange,
  SubmittedRanges,
  TASK_RANGE_COLUMNS,
} from "./task-range-table.js";
import type { RecoveredRows, StoreLog, WriteResultRow, WriteRow } from "./thread-calls.js";

/** Above the epoch of commits that are missing: workers may still refer to it. */
const NEXT_EPOCH = "UPDATE broker SET epoch = max(epoch, ?) + 1 RETURNING epoch, commits";
const COUNT_COMMIT = "UPDATE broker SET commits = ?";
/** The lock proves that no other broker is there, so task ranges of others become this one's. */
const OWN_ALL = `UPDATE task_range SET epoch = ? RETURNING ${TASK_RANGE_COLUMNS}`;

const PAGES_USED = `SELECT c.page_count - f.freelist_count AS pages, s.page_size AS size
  FROM pragma_page_count c, pragma_freelist_count f, pragma_page_size s`;

export class Engine {
  readonly path: string;
  readonly jobs: JobTable;
  readonly results: ResultTable;
  readonly output: OutputTable;
  readonly schedules: ScheduleTable;
  readonly expiredJobs: ReturnType<typeof prepareExpiredJobs>;
  readonly #db: Database;
  /** The former process did not close the store. */
  readonly #hadLog: boolean;
  readonly #damage: Damage | undefined;
  readonly #segments: OutputSegments;
  readonly #jobCounters: JobCounters;
  readonly #names: WorkerNames;
  readonly #submittedRanges: SubmittedRanges;
  readonly #apply: (write: WriteRow, batch: BatchContext) => WriteResultRow;
  readonly #begin: Statement;
  readonly #commit: Statement;
  readonly #countCommit: Statement;
  readonly #keyValues: Statement;
  readonly #identity: string;
  readonly #unknownOutput: ReturnType<typeof setAsideUnknownOutput>;
  #epoch: Epoch = 0;
  #commits = 0;
  #lastJob = 0;
  #note: LastCommitNote | undefined;
  #log: StoreLog = () => {};

  constructor(dir: string) {
    this.path = join(dir, "store.db");
    let db: Database | undefined;
    try {
      const stored = inspectDatabase(this.path);
      this.#hadLog = fs.existsSync(`${this.path}-wal`);
      this.#damage = keepDamaged(this.path, stored);
      db = openDatabase(this.path);
      this.#db = db;
      this.#begin = db.prepare("BEGIN IMMEDIATE");
      this.#commit = db.prepare("COMMIT");
      this.#countCommit = db.prepare(COUNT_COMMIT);
      this.#keyValues = db.prepare(
        "SELECT key, value, version, updated_at AS updatedAt FROM key_value WHERE bucket = ? ORDER BY key",
      );
      this.jobs = new JobTable(db);
      this.expiredJobs = prepareExpiredJobs(db);
      const { identity }: { identity: string } = db.prepare("SELECT identity FROM broker").get();
      this.#identity = identity;
      this.#unknownOutput = setAsideUnknownOutput(join(dir, "output"), identity, this.jobs.next());
      this.#segments = new OutputSegments(join(dir, "output"));
      this.#names = new WorkerNames(db);
      this.results = new ResultTable(db, this.#names);
      this.output = new OutputTable(db, this.#segments);
      this.schedules = new ScheduleTable(db);
      this.#jobCounters = new JobCounters(db);
      const { jobs, results, output } = this;
      const insertTaskRange = prepareInsertTaskRange(db);
      this.#submittedRanges = new SubmittedRanges(insertTaskRange);
      this.#apply = prepareOperations({
        ...{ db, jobCounters: this.#jobCounters, jobs, results, output },
        ...{ insertTaskRange, submittedRanges: this.#submittedRanges },
      });
    } catch (cause) {
      db?.close();
      throw storeFailure(cause, this.path);
    }
  }

  /** Takes the next epoch and everything that is not finished. */
  begin(now: number, log: StoreLog): RecoveredRows {
    this.#log = log;
    if (this.#unknownOutput !== undefined) log(this.#unknownOutput.message);
    if (this.#damage !== undefined) log(this.#damage.text, "LABORO_DATA_LOST");
    const last = this.#damage?.last;
    const held = prepareClaimedRange(this.#db);
    const rows = this.#inTransaction(() => {
      const { epoch, commits }: Pick<LastCommit, "epoch" | "commits"> = this.#db
        .prepare(NEXT_EPOCH)
        .get(last?.epoch ?? 0);
      this.#epoch = epoch;
      this.#commits = Math.max(commits, last?.commits ?? 0);
      this.jobs.skipTo(Math.max(last?.job ?? 0, this.#unknownOutput?.lastJob ?? 0));
      const owned: TaskRangeRow[] = this.#db.prepare(OWN_ALL).all(epoch);
      return owned;
    });
    this.#lastJob = this.jobs.next() - 1;
    this.#note = new LastCommitNote(dirname(this.path), this.#lastCommit(now));
    try {
      // So that no frame of the former process stays behind the next commits.
      if (this.#hadLog) this.#db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    } catch {
      // A full disk: the log stays as it is.
    }
    for (const line of this.output.removeOrphaned((job) => this.jobs.wasRemoved(job))) log(line);
    const jobs = this.jobs.openJobs();
    const rangesOf = new Map<JobId, TaskRangeRow[]>(jobs.map(({ id }) => [id, []]));
    for (const row of rows) rangesOf.get(row.job)?.push(row);
    for (const { id, cursor } of jobs) {
      for (const line of this.output.recover(id)) log(line);
      this.output.voidUnknown(id, cursor, rangesOf.get(id) ?? []);
    }
    const taskRanges = rows.sort((a, b) => a.id - b.id).map(held);
    const limitStarts = new LimitStarts(this.#db).all();
    return { identity: this.#identity, epoch: this.#epoch, nextJob: this.jobs.next(), jobs, taskRanges, limitStarts };
  }

  commit(writes: readonly WriteRow[], now: number): WriteResultRow[] {
    if (this.#epoch === 0) throw new LaboroError("LABORO_INTERNAL", "the store has not been opened");
    // Bytes before the rows that refer to them: a crash in between leaves unused bytes.
    let written = false;
    for (const write of writes) {
      if (write.op !== "output" || write.chunks.length === 0) continue;
      this.#segments.append(write.chunks);
      written = true;
    }
    if (written) this.#segments.sync();

    const batch = { epoch: this.#epoch, now, mayRemove: REMOVED_IN_BATCH };
    try {
      const results = this.#inTransaction(() => {
        const applied = writes.map((write) => this.#apply(write, batch));
        this.#submittedRanges.write(this.#epoch);
        for (const job of this.#jobCounters.endedInBatch) this.output.saveUnended(job);
        this.#jobCounters.write(now);
        return applied;
      });
      this.#jobCounters.afterCommit();
      if (writes.some(({ op }) => op === "submit" || op === "schedule")) this.#lastJob = this.jobs.next() - 1;
      this.#note?.write(this.#lastCommit(now));
      for (const line of this.output.afterCommit()) this.#log(line);
      return results;
    } catch (cause) {
      this.#jobCounters.afterRollback();
      this.#submittedRanges.afterRollback();
      this.output.afterRollback();
      this.#names.clear();
      throw cause;
    }
  }

  keyValues(bucket: string): KeyValue[] {
    return this.#keyValues.all(bucket);
  }

  /** Pages in use, and the segments of output. */
  bytesUsed(): number {
    const { pages, size }: { pages: number; size: number } = this.#db.prepare(PAGES_USED).get();
    return pages * size + this.#segments.bytesUsed;
  }

  close(): void {
    this.#segments.close();
    this.#note?.close();
    this.#db.close();
  }

  #lastCommit(at: number): LastCommit {
    return { commits: this.#commits, epoch: this.#epoch, job: this.#lastJob, at };
  }

  #inTransaction<T>(work: () => T): T {
    this.#begin.run();
    try {
      const done = work();
      this.#countCommit.run(this.#commits + 1);
      this.#commit.run();
      this.#commits++;
      return done;
    } catch (cause) {
      // Some failures, a full disk among them, have rolled back already.
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw cause;
    }
  }
}
