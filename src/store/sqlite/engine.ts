/**
 * The store itself, synchronous, as it runs in its thread. It is opened once; every other call needs it open.
 */
import { join } from "node:path";
import { LaboroError } from "../../base/errors.js";
import type { JobId } from "../../model/ids.js";
import type { Epoch, KeyValue } from "../../model/store.js";
import { setAsideUnknownOutput } from "../output/output-owner.js";
import { OutputSegments } from "../output/output-segments.js";
import type { BatchContext } from "./batch-context.js";
import { type Database, openDatabase, type Statement } from "./database.js";
import { storeFailure } from "./failures.js";
import { JobCounters } from "./job-counters.js";
import { JobTable } from "./job-table.js";
import type { RecoveredRows, WriteResultRow, WriteRow } from "./messages.js";
import { prepareOperations } from "./operations/index.js";
import { OutputTable } from "./output-table.js";
import { ResultTable } from "./result-table.js";
import {
  prepareClaimedRange,
  prepareInsertTaskRange,
  TASK_RANGE_COLUMNS,
  type TaskRangeRow,
} from "./task-range-table.js";
import { WorkerNumbers } from "./worker-numbers.js";

const NEXT_EPOCH = "UPDATE broker SET epoch = epoch + 1 RETURNING epoch";
/** The lock says that no other broker is there, so whatever another left behind is this one's. */
const OWN_ALL = `UPDATE task_range SET epoch = ? RETURNING ${TASK_RANGE_COLUMNS}`;

const PAGES_USED = `SELECT c.page_count - f.freelist_count AS pages, s.page_size AS size
  FROM pragma_page_count c, pragma_freelist_count f, pragma_page_size s`;

export class Engine {
  readonly path: string;
  readonly jobs: JobTable;
  readonly results: ResultTable;
  readonly output: OutputTable;
  readonly #db: Database;
  readonly #segments: OutputSegments;
  readonly #jobCounters: JobCounters;
  readonly #names: WorkerNumbers;
  readonly #apply: (write: WriteRow, batch: BatchContext) => WriteResultRow;
  readonly #begin: Statement;
  readonly #commit: Statement;
  readonly #keyValues: Statement;
  readonly #identity: string;
  /** Of unknown output, for the operator. */
  readonly #setAside: string | undefined;
  #epoch: Epoch = 0;
  #log: (line: string) => void = () => {};

  constructor(dir: string, relaxed = false) {
    this.path = join(dir, "store.db");
    let db: Database | undefined;
    try {
      db = openDatabase(this.path, relaxed);
      this.#db = db;
      this.#begin = db.prepare("BEGIN IMMEDIATE");
      this.#commit = db.prepare("COMMIT");
      this.#keyValues = db.prepare(
        "SELECT key, value, version, updated_at AS updatedAt FROM key_value WHERE bucket = ? ORDER BY key",
      );
      this.jobs = new JobTable(db);
      const { identity }: { identity: string } = db.prepare("SELECT identity FROM broker").get();
      this.#identity = identity;
      const unknown = setAsideUnknownOutput(join(dir, "output"), identity, this.jobs.next());
      if (unknown !== undefined) this.jobs.skipTo(unknown.lastJob);
      this.#setAside = unknown?.message;
      this.#segments = new OutputSegments(join(dir, "output"));
      this.#names = new WorkerNumbers(db);
      this.results = new ResultTable(db, this.#names);
      this.output = new OutputTable(db, this.#segments);
      this.#jobCounters = new JobCounters(db);
      const { jobs, results, output } = this;
      const insertTaskRange = prepareInsertTaskRange(db);
      this.#apply = prepareOperations({ db, jobCounters: this.#jobCounters, jobs, results, output, insertTaskRange });
    } catch (cause) {
      db?.close();
      throw storeFailure(cause, this.path);
    }
  }

  /** Takes the next epoch and everything that is not finished. */
  begin(log: (line: string) => void): RecoveredRows {
    this.#log = log;
    if (this.#setAside !== undefined) log(this.#setAside);
    const held = prepareClaimedRange(this.#db);
    const { epoch, rows } = this.#inTransaction(() => {
      const next: { epoch: Epoch } = this.#db.prepare(NEXT_EPOCH).get();
      const owned: TaskRangeRow[] = this.#db.prepare(OWN_ALL).all(next.epoch);
      return { epoch: next.epoch, rows: owned };
    });
    this.#epoch = epoch;
    for (const line of this.output.removeOrphaned((job) => this.jobs.wasRemoved(job))) log(line);
    const jobs = this.jobs.openJobs();
    const rangesOf = new Map<JobId, TaskRangeRow[]>(jobs.map(({ id }) => [id, []]));
    for (const row of rows) rangesOf.get(row.job)?.push(row);
    for (const { id, cursor } of jobs) {
      for (const line of this.output.recover(id)) log(line);
      this.output.voidUnknown(id, cursor, rangesOf.get(id) ?? []);
    }
    const taskRanges = rows.sort((a, b) => a.id - b.id).map(held);
    return { identity: this.#identity, epoch, nextJob: this.jobs.next(), jobs, taskRanges };
  }

  commit(writes: readonly WriteRow[], now: number): WriteResultRow[] {
    if (this.#epoch === 0) throw new LaboroError("LABORO_INTERNAL", "the store has not been opened");
    // Bytes before the rows that refer to them: a crash in between leaves bytes that nobody asks for.
    let written = false;
    for (const write of writes) {
      if (write.op !== "output" || write.chunks.length === 0) continue;
      this.#segments.append(write.chunks);
      written = true;
    }
    if (written) this.#segments.sync();

    const batch = { epoch: this.#epoch, now };
    try {
      const results = this.#inTransaction(() => {
        const applied = writes.map((write) => this.#apply(write, batch));
        for (const job of this.#jobCounters.endedInBatch) this.output.saveUnended(job);
        this.#jobCounters.write(now);
        return applied;
      });
      for (const line of this.output.afterCommit()) this.#log(line);
      return results;
    } catch (cause) {
      this.output.afterRollback();
      this.#names.clear();
      throw cause;
    } finally {
      this.#jobCounters.clear();
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
    this.#db.close();
  }

  #inTransaction<T>(work: () => T): T {
    this.#begin.run();
    try {
      const done = work();
      this.#commit.run();
      return done;
    } catch (cause) {
      // Some failures, a full disk among them, have rolled back already.
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw cause;
    }
  }
}
