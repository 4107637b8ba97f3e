/** The embedded engine: SQLite in the data directory, in a thread of its own. */
import { pack, unpack } from "msgpackr";
import { LaboroError } from "../../base/errors.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import { type Entries, isParked, type Job, type JobSpec, newJob } from "../../model/job.js";
import type { TaskResult } from "../../model/outcome.js";
import type { Range } from "../../model/ranges.js";
import type { SchedulePage, ScheduleQuery } from "../../model/schedule.js";
import type { RecoveredState, Store, Write, WriteResult } from "../../model/store.js";
import type {
  EndCounts,
  JobFilter,
  JobPage,
  KeyValue,
  NextDelayed,
  OutputOptions,
  OutputPage,
  ResultOptions,
  ResultPage,
  TaskUsage,
} from "../../model/store-reads.js";
import { jobFromColumns } from "../job-rows.js";
import { chunkEntries, encodeSchedule, entriesWithin, freshTaskRange, scheduleFrom } from "../rows.js";
import { type DataDirectory, openDataDirectory } from "./data-directory.js";
import { unpackWriteResults } from "./pack-write-results.js";
import { packWrites, transferable } from "./pack-writes.js";
import {
  type EditedRow,
  type EditRow,
  type JobRow,
  type RerunRow,
  type ScheduleResultRow,
  type StoreLog,
  type SubmitRow,
  type SubmittedRow,
  type TaskAttempt,
  ThreadCalls,
  type WriteResultRow,
  type WriteRow,
} from "./thread-calls.js";

interface SqliteOptions {
  readonly dir: string;
  /** SQLite's locks and syncs are unreliable on most network filesystems. Set this for one where they work. */
  readonly allowNetworkFilesystem?: boolean;
  readonly log?: StoreLog;
}

export function openSqliteStore(options: SqliteOptions): Store {
  return new SqliteStore(options);
}

/**
 * States: new; open, with the directory locked and the thread running; closed. The end of the thread closes its files,
 * so the directory is released only after it.
 */
class SqliteStore implements Store {
  readonly shared = false;
  readonly #options: SqliteOptions;
  #directory: DataDirectory | undefined;
  #calls: ThreadCalls | undefined;

  constructor(options: SqliteOptions) {
    this.#options = options;
  }

  async open(now: number): Promise<RecoveredState> {
    const { dir, allowNetworkFilesystem = false, log = () => {} } = this.#options;
    // First: it loads while the directory is locked.
    this.#calls = ThreadCalls.start(log);
    try {
      this.#directory = openDataDirectory({ dir, allowNetworkFilesystem });
      const { jobs, ...recovered } = await this.#calls.call("open", { dir, now });
      return { ...recovered, jobs: jobs.map(jobFrom) };
    } catch (cause) {
      await this.#end();
      throw cause;
    }
  }

  async commit(writes: readonly Write[], now: number): Promise<readonly WriteResult[]> {
    const packed = packWrites(writes, { submitRow, scheduleRow, editRow });
    const rows = unpackWriteResults(await this.#thread.call("commit", { writes: packed, now }, transferable(packed)));
    return rows.map((row, at) => writeResultFrom(row, writes[at], now));
  }

  async job(id: JobId): Promise<Job | undefined> {
    const row = await this.#thread.call("job", { id });
    return row === undefined ? undefined : jobFrom(row);
  }

  async jobs(options: {
    readonly before?: JobId;
    readonly limit: number;
    readonly filter?: JobFilter;
  }): Promise<JobPage> {
    const rows = await this.#thread.call("jobs", { ...options, limit: options.limit + 1 });
    const jobs = rows.slice(0, options.limit).map(jobFrom);
    const last = jobs.at(-1);
    return rows.length > options.limit && last !== undefined ? { jobs, next: last.id } : { jobs };
  }

  async expiredJobs(...args: Parameters<Store["expiredJobs"]>): Promise<readonly JobId[]> {
    return this.#thread.call("expiredJobs", args);
  }

  async nextDelayed(): Promise<NextDelayed> {
    return this.#thread.call("nextDelayed", {});
  }

  async delayedCount(): Promise<number> {
    return this.#thread.call("delayedCount", {});
  }

  async results(job: JobId, options: ResultOptions): Promise<ResultPage> {
    const { limit } = options;
    const found = await this.#thread.call("results", { ...options, job, limit: limit + 1 });
    const beyond = found[limit];
    return beyond === undefined ? { results: found } : { results: found.slice(0, limit), next: beyond.index };
  }

  async usage(job: JobId, range: Range): Promise<readonly TaskUsage[]> {
    return this.#thread.call("usage", { job, range });
  }

  async endCounts(job: JobId, range: Range, cellSize: number): Promise<readonly EndCounts[]> {
    return this.#thread.call("endCounts", { job, range, cellSize });
  }

  async earlierAttempts(job: JobId, index: TaskIndex): Promise<readonly TaskResult[]> {
    return this.#thread.call("earlierAttempts", { job, index });
  }

  async entries(job: JobId, range: Range): Promise<Entries> {
    return entriesWithin(await this.#thread.call("entries", { job, range }), range);
  }

  async output(job: JobId, index: TaskIndex, options: OutputOptions): Promise<OutputPage> {
    return this.#thread.call("output", { job, index, options });
  }

  async storedOutputBytes(tasks: readonly TaskAttempt[]): Promise<readonly number[]> {
    return this.#thread.call("storedOutputBytes", { tasks });
  }

  async keyValues(bucket: string): Promise<readonly KeyValue[]> {
    return this.#thread.call("keyValues", { bucket });
  }

  async schedules(query: ScheduleQuery): Promise<SchedulePage> {
    // Not the clock of the process: it does not follow when the machine's clock is set.
    const now = Date.now();
    const { rows, earliest } = await this.#thread.call("schedules", { query, now });
    return { schedules: rows.map(scheduleFrom), now, ...(earliest === null ? {} : { earliest }) };
  }

  async bytesUsed(): Promise<number> {
    return this.#thread.call("bytesUsed", {});
  }

  async close(): Promise<void> {
    try {
      await this.#calls?.call("close", {});
    } finally {
      await this.#end();
    }
  }

  get #thread(): ThreadCalls {
    if (this.#calls === undefined) throw new LaboroError("LABORO_STORE_FAILED", "the store is not open");
    return this.#calls;
  }

  async #end(): Promise<void> {
    await this.#calls?.end();
    this.#calls = undefined;
    this.#directory?.release();
    this.#directory = undefined;
  }
}

function writeResultFrom(row: WriteResultRow, write: Write | undefined, now: number): WriteResult {
  if (row.op === "submit") return submitted(write, row, now);
  if (row.op === "schedule") return scheduled(write, row, now);
  if (row.op === "promote") return { ...row, jobs: row.jobs.map(jobFrom) };
  return row.op === "rerun" || row.op === "edit" ? withJob(row) : row;
}

function scheduled(write: Write | undefined, { op, changes }: ScheduleResultRow, now: number): WriteResult {
  const asked = write?.op === "schedule" ? write.changes : [];
  return {
    op,
    changes: changes.map(({ changed, results }, at) => ({
      changed,
      results: results.map((row, i) => writeResultFrom(row, asked[at]?.writes[i], now)),
    })),
  };
}

function withJob({ job, ...row }: RerunRow | EditedRow): WriteResult {
  return job === undefined ? row : { ...row, job: jobFrom(job) };
}

function submitted(write: Write | undefined, row: SubmittedRow, now: number): WriteResult {
  if (write?.op !== "submit")
    throw new LaboroError("LABORO_INTERNAL", "the results of the store do not match the writes");
  const { op, id, granted, replaced } = row;
  const job = newJob(write.job, id, write.entries !== undefined, granted, now);
  const result =
    granted === 0 ? { op, job } : { op, job, taskRange: freshTaskRange(write.rangeId, id, 0, granted - 1) };
  return replaced === undefined ? result : { ...result, replaced };
}

function encodeSpec(spec: JobSpec): Uint8Array {
  // A copy, because pack() returns a view of a shared buffer, which a clone would contain as a whole.
  return new Uint8Array(pack(spec));
}

/** Member by member: to add members to a spread takes several times as long. */
function submitRow({ op, id, job, lease, rangeId, entries }: Extract<Write, { op: "submit" }>): SubmitRow {
  return {
    op,
    id,
    spec: encodeSpec(job),
    name: job.name,
    pool: job.requirement.pool,
    batchKey: job.batchKey ?? null,
    idempotencyKey: job.idempotencyKey ?? null,
    key: job.key ?? null,
    keyForMs: job.keyForMs ?? null,
    ifExists: job.ifExists ?? "return",
    notBefore: isParked(job) ? (job.notBefore ?? null) : null,
    relative: job.delayMs !== undefined,
    keepMs: job.keepMs ?? null,
    keepFailedMs: job.keepFailedMs ?? job.keepMs ?? null,
    count: job.count,
    open: job.open === true,
    held: job.held,
    chunks: entries && chunkEntries(entries),
    lease,
    rangeId,
  };
}

function editRow({ append, ...write }: Extract<Write, { op: "edit" }>): EditRow {
  if (append === undefined) return write;
  const { entries, ...places } = append;
  return { ...write, append: { ...places, ...(entries === undefined ? {} : { chunks: chunkEntries(entries) }) } };
}

function scheduleRow({ op, changes }: Extract<Write, { op: "schedule" }>): Extract<WriteRow, { op: "schedule" }> {
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

const jobFrom = (row: JobRow): Job =>
  jobFromColumns(row, {
    spec: unpack(row.spec),
    cancels: JSON.parse(row.cancels),
    ended: row.endedState ?? undefined,
  });
