/** The database's thread: answers calls one after the other, in the order in which they came. */
import { parentPort, workerData } from "node:worker_threads";
import { LaboroError } from "../../base/errors.js";
import { Engine } from "./engine.js";
import { storeFailure } from "./failures.js";
import { lengthenLog } from "./log-file.js";
import type { Calls, Reply, Request, ThreadData } from "./messages.js";
import { packAnswers } from "./pack-answers.js";
import { unpackWrites } from "./pack-writes.js";

const port = parentPort;
if (port === null) throw new LaboroError("LABORO_INTERNAL", "this file is the store's thread and runs nowhere else");
const data: ThreadData = workerData;
const log = (line: string): void => port.postMessage({ log: line } satisfies Reply);
let engine: Engine | undefined;

/** Quiet for so long, the thread makes room for the log. */
const QUIET_MS = 300;
let quiet: NodeJS.Timeout | undefined;
let roomMade = data.relaxed;

function makeRoom(): void {
  if (engine === undefined) return;
  try {
    roomMade = !lengthenLog(engine.path);
    if (!roomMade) quiet = setTimeout(makeRoom, 1).unref();
  } catch (cause) {
    roomMade = true;
    // Only speed is lost. Whatever is wrong with the disk will be said by a write that matters.
    log(`the log cannot be lengthened: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
}

port.on("message", (request: Request) => {
  clearTimeout(quiet);
  let reply: Reply;
  try {
    reply = { id: request.id, gives: answer(request) };
  } catch (cause) {
    const { code, message } = storeFailure(cause, engine?.path ?? data.dir);
    reply = { id: request.id, error: { code, message } };
  }
  port.postMessage(reply);
  if (engine !== undefined && !roomMade) quiet = setTimeout(makeRoom, QUIET_MS).unref();
});

function answer(request: Request): Calls[Request["call"]]["gives"] {
  if (request.call === "open") {
    engine = new Engine(data.dir, data.relaxed);
    return engine.begin(log);
  }
  if (engine === undefined) throw new LaboroError("LABORO_INTERNAL", "the store is not open");
  switch (request.call) {
    case "commit":
      return packAnswers(engine.commit(unpackWrites(request.asks.writes), request.asks.now));
    case "job":
      return engine.jobs.find(request.asks.id);
    case "jobs":
      return engine.jobs.page(request.asks.before, request.asks.limit, request.asks.filter);
    case "results":
      return engine.results.page(request.asks.job, request.asks.from, request.asks.limit, request.asks.filter);
    case "ends":
      return engine.results.ends(request.asks.job, request.asks.range, request.asks.per);
    case "earlier":
      return engine.results.earlier(request.asks.job, request.asks.index);
    case "entries":
      return engine.jobs.entries(request.asks.job, request.asks.range);
    case "output":
      return engine.output.read(request.asks.job, request.asks.index, request.asks.options);
    case "outputEnds": {
      const { output } = engine;
      return request.asks.tasks.map((task) => output.storedEnd(task));
    }
    case "kept":
      return engine.kept(request.asks.area);
    case "bytes":
      return engine.bytes();
    case "close":
      engine.close();
      engine = undefined;
      return undefined;
  }
}
