/** Runs in a thread: loads a module with handlers, and calls them one at a time. */
import { parentPort, workerData } from "node:worker_threads";
import { MAX_TIMER_MS } from "../../base/clock.js";
import { badInput } from "../../base/errors.js";
import { errorFrom } from "../../model/handler-errors.js";
import { type CallPort, isTaskHandler, type ResultsPage, ServiceCall, Services, typedService } from "../services.js";
import { type FromThread, MAX_UNREAD, ownBytes, type ThreadData, type ToThread } from "./index.js";

const { module, unread } = workerData as ThreadData;
const unreadCount = new Int32Array(unread);
const services = new Services();
const queries = new Map<number, (page: Extract<ToThread, { type: "page" }>["page"]) => void>();
let lastQuery = 0;
let current: { readonly id: number; readonly call: ServiceCall } | undefined;

const send = (message: FromThread): void => parentPort?.postMessage(message);

/** Blocks the thread, and not the worker, where the worker cannot follow. */
function sendInTurn(message: FromThread): void {
  let count = Atomics.add(unreadCount, 0, 1) + 1;
  send(message);
  while (count >= MAX_UNREAD) {
    Atomics.wait(unreadCount, 0, count);
    count = Atomics.load(unreadCount, 0);
  }
}

/** All that the module exports, and the members of a list that it exports. */
async function load(): Promise<void> {
  const exported: unknown[] = Object.values((await import(module)) as object).flat();
  for (const handler of exported.filter(isTaskHandler)) services.set(handler.task.name, typedService(handler));
  if (services.names.length === 0)
    throw badInput(`${module} exports no handler: export const resize = task.handler(async (input) => …)`);
  parentPort?.on("message", (message: ToThread) => receive(message));
  send({ type: "ready", services: services.names });
}

function receive(message: ToThread): void {
  switch (message.type) {
    case "call":
      start(message);
      return;
    case "abort":
      // The worker ends the thread past the grace.
      if (current?.id === message.id) current.call.abort(MAX_TIMER_MS);
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
    progress: (value) => sendInTurn({ type: "progress", id, value }),
    log: (line) => sendInTurn({ type: "log", id, line }),
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
