/** Where a module with handlers runs: in a thread, or in a process. Both load handler-thread.ts. */
import { fork } from "node:child_process";
import { existsSync } from "node:fs";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { deserialize } from "node:v8";
import { Worker } from "node:worker_threads";
import { badInput, LaboroError } from "../../base/errors.js";
import { isWorkerBundle, packageRoot } from "../../base/package.js";
import { errorFrom } from "../../model/task-definition.js";
import { signalGroup } from "../processes/guardian.js";
import type { Guardian } from "../processes/index.js";
import { FRAMINGS } from "../programs/persistent-process.js";
import type { FromThread, HostEvents, ToThread } from "./index.js";

export interface Host {
  send(message: ToThread): void;
  kill(): void;
}

export interface ThreadData {
  /** The URL of the module with the handlers. */
  readonly module: string;
  /** One Int32: how many lines and progress values of the thread the worker has not read yet. */
  readonly unread: SharedArrayBuffer;
}

/** At this number a thread waits until half are read: a handler that writes on and on must not stop the heartbeat. */
export const MAX_UNREAD = 512;

/** The argument by which the file knows that it is such a process; the URL of the module follows. */
export const HANDLER_PROCESS = "laboro-handlers";
/** The descriptor for the process's messages, each after its length. It blocks until they fit, like a thread. */
export const MESSAGES_FD = 4;

/** Beside this module, or the compiled one where this is the bundle or the source: the bundle cannot import modules. */
function hostFile(): URL {
  // Its file is the thread's, too.
  if (isWorkerBundle) return new URL(import.meta.url);
  const beside = new URL("handler-thread.js", import.meta.url);
  const installed = existsSync(beside) ? beside : new URL("dist/worker/threads/handler-thread.js", packageRoot());
  if (existsSync(installed)) return installed;
  throw badInput(`a bundle has no ${installed.pathname}, which threads run: leave laboro/worker out of the bundle`);
}

export function startThread(module: URL, { onMessage, onExit }: HostEvents): Host {
  const unread = new Int32Array(new SharedArrayBuffer(4));
  const workerData: ThreadData = { module: module.href, unread: unread.buffer };
  const worker = new Worker(hostFile(), { workerData });
  let error: Error | undefined;
  worker.on("message", (message: FromThread) => {
    if (message.type === "log" || message.type === "progress") {
      if (Atomics.sub(unread, 0, 1) === MAX_UNREAD / 2) Atomics.notify(unread, 0);
    }
    onMessage(message);
  });
  worker.on("error", (cause) => (error = cause));
  worker.on("exit", (code) => onExit(error ?? new Error(`the handler ended its thread with exit code ${code}`)));
  // A worker that is waiting for work is kept alive by its link.
  worker.unref();
  return { send: (message) => worker.postMessage(message), kill: () => void worker.terminate() };
}

/** It leads a process group: signals of a terminal do not reach it, and the guardian ends it if the worker dies. */
export function startProcess(module: URL, memoryMb: number, guardian: Guardian, events: HostEvents): Host {
  const child = fork(fileURLToPath(hostFile()), [HANDLER_PROCESS, module.href], {
    detached: true,
    execArgv: [`--max-old-space-size=${memoryMb}`],
    serialization: "advanced",
    stdio: ["ignore", "inherit", "inherit", "ipc", "pipe"],
  });
  const { pid } = child;
  if (pid !== undefined) guardian.watch(pid);
  const kill = (): void => {
    if (pid !== undefined) signalGroup(pid, "SIGKILL");
  };
  const frames = FRAMINGS.length.reader(Number.POSITIVE_INFINITY);
  // Absent where no process could be started.
  const messages = child.stdio?.[MESSAGES_FD] as Socket | undefined;
  messages?.on("data", (bytes: Buffer) => {
    for (const frame of frames.push(bytes)) receive(deserialize(frame) as FromThread);
  });
  let error: Error | undefined;
  const receive = (message: FromThread): void => {
    if (message.type === "crash") error = errorFrom(message.error);
    else events.onMessage(message);
  };
  child.on("error", (cause) => {
    error = cause;
    if (pid === undefined) events.onExit(cause);
  });
  // What it has started ends with it.
  child.on("exit", kill);
  child.on("close", (code, signal) => {
    if (pid !== undefined) guardian.unwatch(pid);
    events.onExit(error ?? whyEnded(memoryMb, code, signal));
  });
  child.unref();
  child.channel?.unref();
  messages?.unref();
  return {
    send: (message) => void (child.connected && child.send(message, () => {})),
    kill,
  };
}

/** V8 aborts a process whose heap is full. */
function whyEnded(memoryMb: number, code: number | null, signal: string | null): Error {
  const how = signal === null ? `ended its process with exit code ${code}` : `lost its process to ${signal}`;
  if (signal !== "SIGABRT") return new Error(`the handler ${how}`);
  return new LaboroError("LABORO_SERVICE_FAILED", `the handler needs more than ${memoryMb} MiB of memory`);
}
