/** The database's thread: answers calls one after the other, in the order in which they came. */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { parentPort } from "node:worker_threads";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFully } from "../../base/files/durable.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { Range } from "../../model/ranges.js";
import type { ScheduleQuery } from "../../model/schedule.js";
import type { JobFilter, OutputOptions, ResultOptions } from "../../model/store-reads.js";
import { storeFailure } from "./data-directory.js";
import { Engine } from "./engine.js";
import { packWriteResults } from "./pack-write-results.js";
import { type PackedWrites, unpackWrites } from "./pack-writes.js";
import type { RecoveredRows, StoreLog, TaskAttempt, ThreadReply } from "./thread-calls.js";

const port = parentPort;
if (port === null) throw new LaboroError("LABORO_INTERNAL", "this file is the store's thread and runs nowhere else");
const log: StoreLog = (line, code) =>
  port.postMessage({ log: line, ...(code === undefined ? {} : { code }) } satisfies ThreadReply);
let engine: Engine | undefined;

/** What the thread answers while the store is open. `Calls` has its types from here. */
const ANSWERS = {
  commit: (store: Engine, { writes, now }: { writes: PackedWrites; now: number }) =>
    packWriteResults(store.commit(unpackWrites(writes), now)),
  job: ({ jobs }: Engine, { id }: { id: JobId }) => jobs.find(id),
  jobs: ({ jobs }: Engine, { before, limit, filter }: { before?: JobId; limit: number; filter?: JobFilter }) =>
    jobs.page(before, limit, filter),
  expiredJobs: ({ expiredJobs }: Engine, args: Parameters<Engine["expiredJobs"]>) => expiredJobs(...args),
  nextDelayed: ({ jobs }: Engine, _: object) => jobs.nextDelayed(),
  delayedCount: ({ jobs }: Engine, _: object) => jobs.delayedCount(),
  results: ({ results }: Engine, args: { job: JobId } & ResultOptions) => results.page(args.job, args),
  endCounts: ({ results }: Engine, { job, range, cellSize }: { job: JobId; range: Range; cellSize: number }) =>
    results.endCounts(job, range, cellSize),
  usage: ({ results }: Engine, { job, range }: { job: JobId; range: Range }) => results.usage(job, range),
  earlierAttempts: ({ results }: Engine, { job, index }: { job: JobId; index: TaskIndex }) =>
    results.earlierAttempts(job, index),
  entries: ({ jobs }: Engine, { job, range }: { job: JobId; range: Range }) => jobs.entries(job, range),
  output: ({ output }: Engine, { job, index, options }: { job: JobId; index: TaskIndex; options: OutputOptions }) =>
    output.read(job, index, options),
  storedOutputBytes: ({ output }: Engine, { tasks }: { tasks: readonly TaskAttempt[] }) =>
    tasks.map((task) => output.storedEnd(task)),
  keyValues: (store: Engine, { bucket }: { bucket: string }) => store.keyValues(bucket),
  schedules: ({ schedules }: Engine, { query, now }: { query: ScheduleQuery; now: number }) =>
    schedules.read(query, now),
  bytesUsed: (store: Engine, _: object) => store.bytesUsed(),
};

type Answers = typeof ANSWERS;

/** What the thread can be asked. */
export type Calls = {
  [Name in keyof Answers]: { args: Parameters<Answers[Name]>[1]; result: ReturnType<Answers[Name]> };
} & {
  open: { args: { dir: string; now: number }; result: RecoveredRows };
  close: { args: object; result: undefined };
};

type ThreadRequest = {
  [Name in keyof Calls]: { id: number; call: Name; args: Calls[Name]["args"] };
}[keyof Calls];

/** After this long without a call the thread extends the WAL file. */
const IDLE_MS = 300;
let idleTimer: NodeJS.Timeout | undefined;
let walExtended = false;

function extendWalWhenIdle(): void {
  if (engine === undefined) return;
  try {
    walExtended = !extendWal(engine.path);
    if (!walExtended) idleTimer = setTimeout(extendWalWhenIdle, 1).unref();
  } catch (cause) {
    walExtended = true;
    // Only speed is lost. A problem of the disk will be reported by the next commit.
    log(`the WAL file cannot be extended: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
}

port.on("message", (request: ThreadRequest) => {
  clearTimeout(idleTimer);
  let reply: ThreadReply;
  try {
    reply = { id: request.id, result: answer(request) };
  } catch (cause) {
    const { code, message } = storeFailure(cause, engine?.path ?? (request.call === "open" ? request.args.dir : ""));
    reply = { id: request.id, error: { code, message } };
  }
  port.postMessage(reply);
  if (engine !== undefined && !walExtended) idleTimer = setTimeout(extendWalWhenIdle, IDLE_MS).unref();
});

/** A call has the arguments of its answer: see Calls. */
function answer({ call, args }: ThreadRequest): unknown {
  if (call === "open") {
    engine = new Engine(args.dir);
    return engine.begin(args.now, log);
  }
  if (engine === undefined) throw new LaboroError("LABORO_INTERNAL", "the store is not open");
  if (call !== "close") return (ANSWERS[call] as (engine: Engine, args: unknown) => unknown)(engine, args);
  engine.close();
  engine = undefined;
  return undefined;
}

// Extends SQLite's log before the space is needed. A commit that makes the log longer must also store the new length,
// which doubles the time of its fsync; a commit that overwrites existing bytes need not. So while the thread is idle,
// the log is extended piece by piece to the size that it reaches between two checkpoints. SQLite ignores everything
// after its last frame, because the checksums do not match.

/** 4,096 pages with their frame headers, and a little more. */
const TARGET_BYTES = 17 * 1024 * 1024;
const PIECE = 1024 * 1024;
/** On a disk with less free space than this the log is not extended. */
const MIN_FREE_DISK = 1024 * 1024 * 1024;

/** Extends the log by one piece; false when it is long enough. The thread that writes the log calls it. */
function extendWal(path: string): boolean {
  const log = `${path}-wal`;
  let fd: number;
  try {
    fd = fs.openSync(log, "r+");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return false;
    throw cause;
  }
  try {
    const { size } = fs.fstatSync(fd);
    if (size >= TARGET_BYTES || !hasFreeDisk(dirname(path))) return false;
    writeFully(fd, Buffer.alloc(Math.min(PIECE, TARGET_BYTES - size)), size);
    fs.fdatasyncSync(fd);
    return true;
  } finally {
    fs.closeSync(fd);
  }
}

function hasFreeDisk(dir: string): boolean {
  const { bavail, bsize } = fs.statfsSync(dir);
  return bavail * bsize > MIN_FREE_DISK;
}
