/** Runs in a thread or in a process: loads a module with handlers, and calls them one at a time. */
import { writeSync } from "node:fs";
import { serialize } from "node:v8";
import { parentPort, workerData } from "node:worker_threads";
import { MAX_TIMER_MS } from "../../base/clock.js";
import { badInput } from "../../base/errors.js";
import { describeError, errorFrom } from "../../model/task-definition.js";
import { type CallPort, isTaskHandler, type ResultsPage, ServiceCall, Services, typedService } from "../services.js";
import { HANDLER_PROCESS, MAX_UNREAD, MESSAGES_FD, type ThreadData } from "./hosts.js";
import { type FromThread, ownBytes, type ToThread } from "./index.js";

const services = new Services();
const queries = new Map<number, (page: Extract<ToThread, { type: "page" }>["page"]) => void>();
let lastQuery = 0;
let current: { readonly id: number; readonly call: ServiceCall } | undefined;

interface Host {
  readonly module: string;
  send(message: FromThread): void;
  onMessage(receive: (message: ToThread) => void): void;
}

const host = process.argv[2] === HANDLER_PROCESS ? processHost(process.argv[3] ?? "") : threadHost();
const { send } = host;

function threadHost(): Host {
  const { module, unread } = workerData as ThreadData;
  const unreadCount = new Int32Array(unread);
  return {
    module,
    send: (message) => {
      parentPort?.postMessage(message);
      if (message.type !== "log" && message.type !== "progress") return;
      // Blocks the thread, not the worker, if the worker is too slow.
      let count = Atomics.add(unreadCount, 0, 1) + 1;
      while (count >= MAX_UNREAD) {
        Atomics.wait(unreadCount, 0, count);
        count = Atomics.load(unreadCount, 0);
      }
    },
    onMessage: (receive) => parentPort?.on("message", receive),
  };
}

function processHost(module: string): Host {
  const send = (message: FromThread): void => {
    const body = serialize(message);
    const head = Buffer.alloc(4);
    head.writeUInt32BE(body.length);
    let rest = Buffer.concat([head, body]);
    while (rest.length > 0) rest = rest.subarray(writeSync(MESSAGES_FD, rest));
  };
  process.on("disconnect", () => process.exit(0));
  // The worker decides: a service manager signals all processes.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => {});
  process.on("uncaughtExceptionMonitor", (cause) => send({ type: "crash", error: describeError(cause) }));
  return { module, send, onMessage: (receive) => process.on("message", receive) };
}

/** All that the module exports, and the members of a list that it exports. */
async function load(): Promise<void> {
  const exported: unknown[] = Object.values((await import(host.module)) as object).flat();
  for (const handler of exported.filter(isTaskHandler)) services.set(handler.task.name, typedService(handler));
  if (services.names.length === 0)
    throw badInput(`${host.module} exports no handler: export const resize = task.handler(async (input) => …)`);
  host.onMessage(receive);
  send({ type: "ready", services: services.names });
}

function receive(message: ToThread): void {
  switch (message.type) {
    case "call":
      start(message);
      return;
    case "abort":
      // The worker ends the thread past the grace.
      if (current?.id === message.id) current.call.abort(MAX_TIMER_MS, errorFrom(message.reason));
      return;
    case "page":
      queries.get(message.query)?.(message.page);
      queries.delete(message.query);
      return;
    case "close":
      process.exit(0);
  }
}

function start({ id, service, body, info }: Extract<ToThread, { type: "call" }>): void {
  const port: CallPort = {
    progress: (value) => send({ type: "progress", id, value }),
    log: (line) => send({ type: "log", id, line }),
    results: (job, from, limit) => {
      const query = ++lastQuery;
      return new Promise<ResultsPage>((resolve, reject) => {
        queries.set(query, (page) => ("error" in page ? reject(errorFrom(page.error)) : resolve(page)));
        send({ type: "results", id, query, job, from, limit });
      });
    },
  };
  const call = new ServiceCall(service, info, port, ({ body: answer, details }) => {
    current = undefined;
    send({ type: "reply", id, body: ownBytes(answer), ...(details && { error: details }) });
  });
  current = { id, call };
  services.start(call, service, body);
}

void load();
