/** The database's thread: answers calls one after the other, in the order in which they came. */
import { parentPort } from "node:worker_threads";
import { LaboroError } from "../../base/errors.js";
import { Engine } from "./engine.js";
import { storeFailure } from "./failures.js";
import type { Calls, StoreLog, ThreadReply, ThreadRequest } from "./messages.js";
import { packWriteResults } from "./pack-write-results.js";
import { unpackWrites } from "./pack-writes.js";
import { extendWal } from "./wal-file.js";

const port = parentPort;
if (port === null) throw new LaboroError("LABORO_INTERNAL", "this file is the store's thread and runs nowhere else");
const log: StoreLog = (line, code) =>
  port.postMessage({ log: line, ...(code === undefined ? {} : { code }) } satisfies ThreadReply);
let engine: Engine | undefined;

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

function answer(request: ThreadRequest): Calls[ThreadRequest["call"]]["result"] {
  if (request.call === "open") {
    engine = new Engine(request.args.dir);
    return engine.begin(request.args.now, log);
  }
  if (engine === undefined) throw new LaboroError("LABORO_INTERNAL", "the store is not open");
  switch (request.call) {
    case "commit":
      return packWriteResults(engine.commit(unpackWrites(request.args.writes), request.args.now));
    case "job":
      return engine.jobs.find(request.args.id);
    case "jobs":
      return engine.jobs.page(request.args.before, request.args.limit, request.args.filter);
    case "expiredJobs":
      return engine.expiredJobs(request.args.now, request.args.keep, request.args.limit);
    case "nextDelayed":
      return engine.jobs.nextDelayed();
    case "results":
      return engine.results.page(request.args.job, request.args);
    case "endCounts":
      return engine.results.endCounts(request.args.job, request.args.range, request.args.cellSize);
    case "usage":
      return engine.results.usage(request.args.job);
    case "earlierAttempts":
      return engine.results.earlierAttempts(request.args.job, request.args.index);
    case "entries":
      return engine.jobs.entries(request.args.job, request.args.range);
    case "output":
      return engine.output.read(request.args.job, request.args.index, request.args.options);
    case "storedOutputBytes": {
      const { output } = engine;
      return request.args.tasks.map((task) => output.storedEnd(task));
    }
    case "keyValues":
      return engine.keyValues(request.args.bucket);
    case "schedules":
      return engine.schedules.read(request.args.query, request.args.now);
    case "bytesUsed":
      return engine.bytesUsed();
    case "close":
      engine.close();
      engine = undefined;
      return undefined;
  }
}
