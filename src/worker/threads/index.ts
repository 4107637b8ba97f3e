/**
 * A module with handlers, in threads. A thread does one call at a time. A handler that is busy stops no heartbeat, one that never ends is
 * ended with its thread, and a thread that crashes fails its own call alone; the next call gets another thread.
 */

import { existsSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { LaboroError } from "../../base/errors.js";
import { isWorkerBundle, packageRoot } from "../../base/package.js";
import { describeError, type ErrorDetails, errorFrom } from "../../model/handler-errors.js";
import { ObjectPool } from "../programs/object-pool.js";
import type { Answer, CallHandler, CallInfo, ResultsPage, ServiceCall } from "../services.js";

// What a worker and its handler threads send each other. A thread has one call at a time.

export interface ThreadData {
  /** The URL of the module with the handlers. */
  readonly module: string;
  /** One Int32: how many lines and progress values of the thread the worker has not read yet. */
  readonly unread: SharedArrayBuffer;
}

/** With so many, a thread waits until the worker has read half of them. Without that, a handler that writes without end would stop the heartbeat. */
export const MAX_UNREAD = 512;

export type ToThread =
  | {
      readonly type: "call";
      readonly id: number;
      readonly service: string;
      readonly body: Uint8Array;
      readonly info: CallInfo;
    }
  | { readonly type: "abort"; readonly id: number }
  | { readonly type: "page"; readonly query: number; readonly page: ResultsPage | { readonly error: ErrorDetails } }
  | { readonly type: "close" };

export type FromThread =
  /** The module is loaded: the tasks that it has handlers for. */
  | { readonly type: "ready"; readonly services: readonly string[] }
  | { readonly type: "reply"; readonly id: number; readonly body: Uint8Array; readonly error?: ErrorDetails }
  | { readonly type: "progress"; readonly id: number; readonly value: string }
  | { readonly type: "log"; readonly id: number; readonly line: string }
  | {
      readonly type: "results";
      readonly id: number;
      readonly query: number;
      readonly job: number;
      readonly from: number;
      readonly limit?: 1 | undefined;
    };

/** Bytes in a buffer of their own. A message copies the whole buffer behind a view: a frame with a hundred bodies, for example. */
export const ownBytes = (bytes: Uint8Array): Uint8Array =>
  bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);

/** Of a module whose handlers run in threads. */
export interface ThreadOptions {
  /** How many threads, so how many calls at a time; as many as the worker has slots if absent. */
  readonly threads?: number;
  /** The heap of each thread, in MiB. A handler that needs more fails. Buffers are not counted. */
  readonly memoryMb?: number;
}

interface RunningCall {
  readonly id: number;
  readonly call: ServiceCall;
  readonly succeed: (answer: Answer) => void;
  readonly fail: (cause: Error) => void;
}

/** Beside this module, or the compiled one where this is the bundle or the source: the bundle cannot import modules. */
function threadFile(): URL {
  // Its file is the thread's, too.
  if (isWorkerBundle) return new URL(import.meta.url);
  const beside = new URL("handler-thread.js", import.meta.url);
  return existsSync(beside) ? beside : new URL("dist/worker/threads/handler-thread.js", packageRoot());
}

class HandlerThread {
  readonly #worker: Worker;
  readonly #memoryMb: number | undefined;
  readonly #onGone: () => void;
  readonly #unread = new Int32Array(new SharedArrayBuffer(4));
  readonly services: Promise<readonly string[]>;
  #running: RunningCall | undefined;
  #lastId = 0;
  #error: Error | undefined;
  #gone = false;

  constructor(module: URL, memoryMb: number | undefined, onGone: () => void) {
    this.#memoryMb = memoryMb;
    this.#onGone = onGone;
    const workerData: ThreadData = { module: module.href, unread: this.#unread.buffer };
    this.#worker = new Worker(threadFile(), {
      workerData,
      ...(memoryMb === undefined ? {} : { resourceLimits: { maxOldGenerationSizeMb: memoryMb } }),
    });
    this.services = new Promise((resolve, reject) => {
      this.#worker.on("message", (message: FromThread) => {
        if (message.type === "ready") resolve(message.services);
        else this.#receive(message);
      });
      this.#worker.on("error", (error) => (this.#error = error));
      this.#worker.on("exit", (code) => {
        const why = this.#whyGone(code);
        reject(why);
        this.#end(why);
      });
    });
    // Where it matters, whoever waits for it handles it.
    this.services.catch(() => {});
    // A worker that is waiting for work is kept alive by its link.
    this.#worker.unref();
  }

  get usable(): boolean {
    return !this.#gone;
  }

  run(service: string, body: Uint8Array, call: ServiceCall): Promise<Answer> {
    const id = ++this.#lastId;
    const abort = (): void => this.#send({ type: "abort", id });
    call.signal.addEventListener("abort", abort);
    call.onAbandoned(() => this.terminate());
    return new Promise<Answer>((succeed, fail) => {
      this.#running = { id, call, succeed, fail };
      this.#send({ type: "call", id, service, body: ownBytes(body), info: call.info });
      if (call.signal.aborted) abort();
    }).finally(() => call.signal.removeEventListener("abort", abort));
  }

  /** Runs the exit handlers of the module. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#gone) return resolve();
      this.#worker.once("exit", () => resolve());
      this.#send({ type: "close" });
    });
  }

  terminate(): void {
    this.#end(new Error("the handler was ended with its thread"));
    void this.#worker.terminate();
  }

  #receive(message: Exclude<FromThread, { type: "ready" }>): void {
    if (message.type === "log" || message.type === "progress") {
      if (Atomics.sub(this.#unread, 0, 1) === MAX_UNREAD / 2) Atomics.notify(this.#unread, 0);
    }
    const running = this.#running;
    if (running === undefined || running.id !== message.id) return;
    const { port } = running.call;
    switch (message.type) {
      case "reply":
        this.#running = undefined;
        if (message.error === undefined) running.succeed(message.body);
        else running.fail(errorFrom(message.error));
        return;
      case "progress":
        port.progress(message.value);
        return;
      case "log":
        port.log(message.line);
        return;
      case "results": {
        const { query, job, from, limit } = message;
        port.results(job, from, limit).then(
          ({ tasks, next }) => this.#send({ type: "page", query, page: { tasks, next } }),
          (cause: unknown) => this.#send({ type: "page", query, page: { error: describeError(cause) } }),
        );
      }
    }
  }

  #whyGone(code: number): Error {
    const error = this.#error as NodeJS.ErrnoException | undefined;
    if (error?.code === "ERR_WORKER_OUT_OF_MEMORY")
      return new LaboroError("LABORO_SERVICE_FAILED", `the handler needs more than ${this.#memoryMb} MiB of memory`);
    return error ?? new Error(`the handler ended its thread with exit code ${code}`);
  }

  #end(why: Error): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#running?.fail(why);
    this.#running = undefined;
    this.#onGone();
  }

  #send(message: ToThread): void {
    if (!this.#gone) this.#worker.postMessage(message);
  }
}

export interface HandlerModule {
  readonly handlers: ReadonlyMap<string, CallHandler>;
  grow(count: number): void;
  /** Threads have so long to run their exit handlers. */
  close(graceMs: number): Promise<void>;
}

/** Loads the module in a first thread. Rejects with what the module throws. */
export async function openModule(module: URL, options: ThreadOptions & { slots: number }): Promise<HandlerModule> {
  const { slots, threads = slots, memoryMb } = options;
  const open = new Set<HandlerThread>();
  const pool = new ObjectPool<HandlerThread>([], threads, () => {
    const thread: HandlerThread = new HandlerThread(module, memoryMb, () => {
      open.delete(thread);
      pool.discard(thread);
    });
    open.add(thread);
    return thread;
  });
  const first = await pool.acquire(new AbortController().signal);
  const names = await first.services;
  pool.release(first);
  const handlerOf =
    (service: string): CallHandler =>
    async (body, call) => {
      let thread = await pool.acquire(call.signal);
      // A thread that has just ended is not released: another takes its place.
      while (!thread.usable) thread = await pool.acquire(call.signal);
      try {
        return await thread.run(service, body, call);
      } finally {
        if (thread.usable) pool.release(thread);
      }
    };
  return {
    handlers: new Map(names.map((name) => [name, handlerOf(name)])),
    grow: (count) => {
      if (options.threads === undefined) pool.grow(count);
    },
    close: async (graceMs) => {
      const terminateAll = (): void => {
        for (const thread of [...open]) thread.terminate();
      };
      const timer = setTimeout(terminateAll, graceMs);
      await Promise.all([...open].map((thread) => thread.close()));
      clearTimeout(timer);
    },
  };
}
