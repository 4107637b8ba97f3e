/** The engine for a group of brokers: PostgreSQL, which all of them write to. */
import { LaboroError } from "../../base/errors.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { Entries, Job } from "../../model/job.js";
import type { TaskResult } from "../../model/outcome.js";
import type { Range } from "../../model/ranges.js";
import type { SchedulePage, ScheduleQuery } from "../../model/schedule.js";
import type { EntryChunk, Epoch, RecoveredState, Store, Write, WriteResult } from "../../model/store.js";
import type { Group } from "../../model/store-group.js";
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
import { entriesWithin } from "../rows.js";
import { ChangeFeed, PostgresSubmissions } from "./change-feed.js";
import { CommitQueue } from "./commit-queue.js";
import { type ConnectionOptions, Connections, type Session } from "./connections.js";
import { joinGroup, PostgresGroup } from "./group.js";
import { conditionsOf, expiredJobs, JOB, type JobRow, jobFrom, pageOfJobs } from "./job-rows.js";
import { ENTRIES, EntryCache, WorkerNumbers } from "./known-rows.js";
import { OUTPUT_ENDS, readOutput } from "./operations/output.js";
import { readSchedules } from "./operations/schedule.js";
import { DELAYED_COUNT, NEXT_DELAYED } from "./operations/submit.js";
import { ENDS, readEarlier, readResults, USAGE } from "./result-columns.js";
import { numberColumns, validText } from "./statements.js";
import { WriteBatch } from "./write-batch.js";

export interface PostgresOptions extends ConnectionOptions {
  /**
   * The epoch of this broker's former process, if that has certainly ended: its task ranges are taken over at once.
   * Otherwise they wait until the lease of that epoch ends.
   */
  readonly formerEpoch?: Epoch;
  /** Its identity in heartbeats. `formerEpoch` counts only with the same identity: the database may be a new one. */
  readonly identity?: string;
  /** Called with messages for the operator. */
  readonly log?: (line: string) => void;
}

export function openPostgresStore(options: PostgresOptions): Store {
  return new PostgresStore(options);
}

const KEY_VALUES = `
SELECT key, value, version, updated_at AS "updatedAt" FROM laboro.key_value WHERE bucket = $1::text ORDER BY key`;

/** What exists only while the store is open. */
interface OpenStore {
  readonly connections: Connections;
  readonly commits: CommitQueue;
  readonly changes: ChangeFeed;
  readonly submissions: PostgresSubmissions;
  readonly group: PostgresGroup;
}

class PostgresStore implements Store {
  readonly shared = true;
  readonly #options: PostgresOptions;
  readonly #workers = new WorkerNumbers();
  readonly #entries = new EntryCache();
  /** For reading, which may be tried again. */
  readonly #reader: Session = { send: (statement, values) => this.#open.connections.read(statement, values) };
  #opened: OpenStore | undefined;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  get group(): Group {
    return this.#open.group;
  }

  async open(): Promise<RecoveredState> {
    const { formerEpoch, identity, log = () => {} } = this.#options;
    const connections = new Connections(this.#options);
    try {
      const { recovered, seen } = await joinGroup(connections, formerEpoch, identity);
      const commits = new CommitQueue(connections, recovered.epoch);
      const changes = new ChangeFeed(connections, recovered.epoch, seen, log);
      const submissions = new PostgresSubmissions(connections, log);
      const group = new PostgresGroup(connections, commits, changes, submissions, recovered.epoch);
      this.#opened = { connections, commits, changes, submissions, group };
      return recovered;
    } catch (cause) {
      await connections.close();
      throw cause;
    }
  }

  async commit(writes: readonly Write[], now: number): Promise<readonly WriteResult[]> {
    const { commits, changes } = this.#open;
    if (writes.length === 0) return [];
    const results = await commits.commit(new WriteBatch(writes, now, this.#workers, this.#entries));
    const removed = writes.flatMap((write, at) =>
      write.op === "remove" && wasRemoved(results[at]) ? [write.job] : [],
    );
    const freed = writes.some(freesLimit);
    if (freed || removed.length > 0 || results.some(concernsOthers)) changes.notify(removed, freed);
    return results;
  }

  async job(id: JobId): Promise<Job | undefined> {
    const [row] = await this.#reader.send<JobRow>(JOB, [id]);
    return row === undefined ? undefined : jobFrom(row);
  }

  async jobs(options: {
    readonly before?: JobId;
    readonly limit: number;
    readonly filter?: JobFilter;
  }): Promise<JobPage> {
    const { before = Number.MAX_SAFE_INTEGER, limit, filter = {} } = options;
    const found = conditionsOf(filter).map((conditions) => {
      const values = [before, limit + 1, ...conditions.map(({ value }) => value)];
      return this.#reader.send<JobRow>(pageOfJobs(conditions), values);
    });
    const rows = (await Promise.all(found)).flat().sort((a, b) => b.id - a.id);
    const jobs = rows.slice(0, limit).map(jobFrom);
    const last = jobs.at(-1);
    return rows.length > limit && last !== undefined ? { jobs, next: last.id } : { jobs };
  }

  async expiredJobs(...[now, keep, limit]: Parameters<Store["expiredJobs"]>): Promise<readonly JobId[]> {
    return expiredJobs(this.#reader, now, keep, limit);
  }

  async delayedCount(): Promise<number> {
    const [row] = await this.#reader.send<{ count: number }>(DELAYED_COUNT);
    return row?.count ?? 0;
  }

  async nextDelayed(): Promise<NextDelayed> {
    const [row] = await this.#reader.send<{ clock: number | null; steady: number | null }>(NEXT_DELAYED);
    const { clock = null, steady = null } = row ?? {};
    return { ...(clock === null ? {} : { clock }), ...(steady === null ? {} : { steady }) };
  }

  results(job: JobId, options: ResultOptions): Promise<ResultPage> {
    return readResults(this.#reader, job, options);
  }

  endCounts(job: JobId, { first, last }: Range, cellSize: number): Promise<readonly EndCounts[]> {
    return this.#reader.send<EndCounts>(ENDS, [job, first, last, cellSize]);
  }

  usage(job: JobId, { first, last }: Range): Promise<readonly TaskUsage[]> {
    return this.#reader.send<TaskUsage>(USAGE, [job, first, last]);
  }

  earlierAttempts(job: JobId, index: TaskIndex): Promise<readonly TaskResult[]> {
    return readEarlier(this.#reader, job, index);
  }

  async entries(job: JobId, range: Range): Promise<Entries> {
    const chunks = await this.#reader.send<EntryChunk>(ENTRIES, [job, range.first, range.last]);
    return entriesWithin(chunks, range);
  }

  output(job: JobId, index: TaskIndex, options: OutputOptions): Promise<OutputPage> {
    return readOutput(this.#reader, job, index, options);
  }

  async storedOutputBytes(
    tasks: readonly { readonly job: JobId; readonly index: TaskIndex; readonly attempt: number }[],
  ): Promise<readonly number[]> {
    if (tasks.length === 0) return [];
    const columns = numberColumns(tasks, "job", "index", "attempt");
    const rows = await this.#reader.send<{ end: number }>(OUTPUT_ENDS, columns);
    return rows.map(({ end }) => end);
  }

  keyValues(bucket: string): Promise<readonly KeyValue[]> {
    return this.#reader.send<KeyValue>(KEY_VALUES, [validText(bucket)]);
  }

  schedules(query: ScheduleQuery): Promise<SchedulePage> {
    return readSchedules(this.#reader, query);
  }

  async bytesUsed(): Promise<number> {
    const [row] = await this.#reader.send<{ bytes: number }>(BYTES);
    return row?.bytes ?? 0;
  }

  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await Promise.all([opened?.changes.stop(), opened?.submissions.close()]);
    await opened?.connections.close();
  }

  get #open(): OpenStore {
    if (this.#opened === undefined) throw new LaboroError("LABORO_STORE_FAILED", "the store is not open");
    return this.#opened;
  }
}

const wasRemoved = (result: WriteResult | undefined): boolean => result?.op === "remove" && result.removed;

/** Whether tasks that counted against a limit have left it, or may have. */
const freesLimit = (write: Write): boolean =>
  write.op === "release" || ((write.op === "settle" || write.op === "replace") && write.limited === true);

/** Whether brokers other than this one have to do something about it. */
function concernsOthers(result: WriteResult): boolean {
  switch (result.op) {
    case "submit":
    case "hold":
    case "cancel":
    case "rerun":
    case "release":
    case "put":
    case "schedule":
      return true;
    case "promote":
      return result.jobs.length > 0;
    case "settle":
    case "replace":
      return result.progress?.ended !== undefined;
    default:
      return false;
  }
}

// The approximate size of the store: bytes of entries and output are counted as they are written, rows by the server's
// statistics. File sizes are not used: files do not shrink when rows are removed, their free space is used again.

/** A row with its share of the indexes, in bytes. */
const ROW_BYTES = {
  job: 450,
  job_state: 150,
  job_counters: 150,
  task_range: 300,
  result: 150,
  earlier_attempt: 150,
  output: 120,
  entry_chunk: 120,
  key_value: 300,
};

const BYTES = `
SELECT (coalesce((SELECT sum(bytes) FROM laboro.job_counters), 0)
  + coalesce(sum(s.n_live_tup * w.width), 0))::bigint AS bytes
FROM pg_stat_user_tables s
JOIN (VALUES ${Object.entries(ROW_BYTES)
  .map(([table, width]) => `('${table}', ${width})`)
  .join(", ")}) AS w (name, width) ON w.name = s.relname
WHERE s.schemaname = 'laboro'`;
