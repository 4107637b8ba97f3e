/**
 * A module with handlers, in threads; with a memory limit in processes, because V8 ends a whole process whose heap is
 * full. Each does one call at a time. A busy handler stops no heartbeat, one that never ends is ended with its thread,
 * and a crash fails only its own call; the next call gets another thread.
 */
import { badInput, LaboroError } from "../../base/errors.js";
import { describeError, type ErrorDetails, errorFrom } from "../../model/task-definition.js";
import type { Guardian } from "../processes/index.js";
import { ObjectPool } from "../programs/object-pool.js";
import type { Answer, CallHandler, CallInfo, ResultsPage, ServiceCall } from "../services.js";
import { type Host, startProcess, startThread } from "./hosts.js";

// What a worker and its handler threads send each other. A thread has one call at a time.

export type ToThread =
  | {
      readonly type: "call";
      readonly id: number;
      readonly service: string;
      readonly body: Uint8Array;
      readonly info: CallInfo;
    }
  | { readonly type: "abort"; readonly id: number; readonly reason: ErrorDetails }
  | { readonly type: "page"; readonly query: number; readonly page: ResultsPage | { readonly error: ErrorDetails } }
  | { readonly type: "close" };

export type FromThread =
  /** The module is loaded. `services`: the tasks that it has handlers for. */
  | { readonly type: "ready"; readonly services: readonly string[] }
  | { readonly type: "reply"; readonly id: number; readonly body: Uint8Array; readonly error?: ErrorDetails }
  | { readonly type: "progress"; readonly id: number; readonly value: string }
  | { readonly type: "log"; readonly id: number; readonly line: string }
  /** Of a process: nothing caught the error. The error of a thread comes with its end. */
  | { readonly type: "crash"; readonly error: ErrorDetails }
  | {
      readonly type: "results";
      readonly id: number;
      readonly query: number;
      readonly job: number;
      readonly from: number;
      readonly limit?: 1 | undefined;
    };

/** What a thread or process reports to its `HandlerThread`. */
export interface HostEvents {
  readonly onMessage: (message: FromThread) => void;
  readonly onExit: (why: Error) => void;
}

/** Copied bytes. A message copies the whole buffer behind a view, for example a frame with a hundred bodies. */
export const ownBytes = (bytes: Uint8Array): Uint8Array =>
  bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);

/** Options of a module whose handlers run in threads. */
export interface ThreadOptions {
  /** How many threads, so how many calls at a time; as many as the worker has slots if absent. */
  readonly threads?: number;
  /**
   * Processes instead of threads, each with a heap of this many MiB. A handler that needs more fails only its own task.
   * Buffers are not counted.
   */
  readonly memoryMb?: number;
  /** How long the module may take to load; 30 s if absent. */
  readonly loadTimeoutMs?: number;
}

const LOAD_TIMEOUT_MS = 30_000;

interface RunningCall {
  readonly id: number;
  readonly call: ServiceCall;
  readonly succeed: (answer: Answer) => void;
  readonly fail: (cause: Error) => void;
}

class HandlerThread {
  readonly #host: Host;
  readonly #onGone: (why: Error | undefined) => void;
  readonly #whenGone: (() => void)[] = [];
  readonly services: Promise<readonly string[]>;
  #running: RunningCall | undefined;
  #lastId = 0;
  #isLoaded = false;
  #gone = false;

  /** `onGone` gets the reason if no call ends with it and nobody has ended the thread. */
  constructor(start: (events: HostEvents) => Host, onGone: (why: Error | undefined) => void) {
    this.#onGone = onGone;
    let loaded: (services: readonly string[]) => void = () => {};
    let failed: (why: Error) => void = () => {};
    this.services = new Promise((resolve, reject) => {
      loaded = resolve;
      failed = reject;
    });
    // Callers that await it handle the error.
    this.services.catch(() => {});
    this.#host = start({
      onMessage: (message) => {
        if (message.type === "ready") {
          this.#isLoaded = true;
          loaded(message.services);
        } else if (message.type !== "crash") this.#receive(message);
      },
      onExit: (why) => {
        failed(why);
        const isUnheard = this.#isLoaded && this.#running === undefined && this.#whenGone.length === 0;
        this.#end(why, isUnheard);
        for (const resolve of this.#whenGone.splice(0)) resolve();
      },
    });
  }

  get usable(): boolean {
    return !this.#gone;
  }

  run(service: string, body: Uint8Array, call: ServiceCall): Promise<Answer> {
    const id = ++this.#lastId;
    const abort = (): void => this.#send({ type: "abort", id, reason: describeError(call.signal.reason) });
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
      this.#whenGone.push(resolve);
      this.#send({ type: "close" });
    });
  }

  terminate(): void {
    this.#end(new Error("the handler was ended with its thread"));
    this.#host.kill();
  }

  #receive(message: Exclude<FromThread, { type: "ready" | "crash" }>): void {
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
          ({ service, tasks, next }) => this.#send({ type: "page", query, page: { service, tasks, next } }),
          (cause: unknown) => this.#send({ type: "page", query, page: { error: describeError(cause) } }),
        );
      }
    }
  }

  #end(why: Error, isUnheard = false): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#running?.fail(why);
    this.#running = undefined;
    this.#onGone(isUnheard ? why : undefined);
  }

  #send(message: ToThread): void {
    if (!this.#gone) this.#host.send(message);
  }
}

export interface HandlerModule {
  readonly handlers: ReadonlyMap<string, CallHandler>;
  grow(count: number): void;
  /** Threads have this long to run their exit handlers. */
  close(graceMs: number): Promise<void>;
}

/** Loads the module in a first thread. Rejects with the error that the module throws. */
export async function openModule(
  module: URL,
  options: ThreadOptions & {
    readonly slots: number;
    readonly guardian: Guardian;
    /** A thread has ended without a call that could fail with the reason: what a handler had left behind has thrown. */
    readonly onLost: (why: Error) => void;
  },
): Promise<HandlerModule> {
  const { slots, threads = slots, memoryMb, loadTimeoutMs = LOAD_TIMEOUT_MS, guardian, onLost } = options;
  const open = new Set<HandlerThread>();
  const start = (events: HostEvents): Host =>
    memoryMb === undefined ? startThread(module, events) : startProcess(module, memoryMb, guardian, events);
  const pool = new ObjectPool<HandlerThread>([], threads, () => {
    const thread: HandlerThread = new HandlerThread(start, (why) => {
      open.delete(thread);
      pool.discard(thread);
      if (why !== undefined) onLost(why);
    });
    open.add(thread);
    return thread;
  });
  const first = await pool.acquire(new AbortController().signal);
  const names = await loaded(first, module, loadTimeoutMs);
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

async function loaded(thread: HandlerThread, module: URL, timeoutMs: number): Promise<readonly string[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const text = `${module.href} has not loaded within ${timeoutMs} ms: does it wait for something at its top level?`;
    timer = setTimeout(() => reject(new LaboroError("LABORO_DEADLINE", text)), timeoutMs);
  });
  try {
    return await Promise.race([thread.services, late]);
  } catch (cause) {
    thread.terminate();
    const isTypeScript = (cause as { code?: unknown } | undefined)?.code === "ERR_UNKNOWN_FILE_EXTENSION";
    if (isTypeScript && /\.[cm]?ts$/.test(module.pathname))
      throw badInput(`${module.href} is TypeScript, which this Node cannot load: compile it first`, cause);
    throw cause;
  } finally {
    clearTimeout(timer);
  }
}
