/**
 * The broker's end of the database's thread: calls out, replies in. Every call gets its reply. If the thread dies, all
 * waiting and later calls are refused with LABORO_STORE_FAILED.
 */
import { Worker } from "node:worker_threads";
import { LaboroError } from "../../base/errors.js";
import { threadFile } from "../../base/package.js";
import type { StoreLog, ThreadReply } from "./messages.js";
import type { Calls } from "./thread.js";

interface PendingCall {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: LaboroError) => void;
}

let early: ThreadCalls | undefined;

export class ThreadCalls {
  readonly #worker: Worker;
  readonly #pending = new Map<number, PendingCall>();
  #count = 0;
  #failure: LaboroError | undefined;
  #log: StoreLog;

  constructor(log: StoreLog, file: URL = threadFile("thread.js", import.meta.url)) {
    this.#log = log;
    this.#worker = new Worker(file, { name: "laboro-store" });
    this.#worker.on("message", (reply: ThreadReply) => {
      if ("log" in reply) this.#log(reply.log, reply.code);
      else this.#settle(reply);
    });
    this.#worker.on("error", (cause) => this.#refuseAll(`its thread failed: ${cause.message}`, cause));
    this.#worker.on("exit", (code) => this.#refuseAll(`its thread has ended (${code})`));
  }

  /** Starts the thread of the next store early: it loads its code meanwhile. It does not keep the process alive. */
  static startEarly(): void {
    if (early !== undefined) return;
    early = new ThreadCalls(() => {});
    early.#worker.unref();
  }

  /** The thread that was started early, or a new one. */
  static start(log: StoreLog): ThreadCalls {
    const calls = early ?? new ThreadCalls(log);
    early = undefined;
    calls.#log = log;
    calls.#worker.ref();
    return calls;
  }

  call<Name extends keyof Calls>(
    call: Name,
    args: Calls[Name]["args"],
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<Calls[Name]["result"]> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const id = ++this.#count;
    return new Promise<Calls[Name]["result"]>((resolve, reject) => {
      // The thread answers each call with what Calls says of it.
      this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject });
      this.#worker.postMessage({ id, call, args }, transfer);
    });
  }

  /** Ends the thread; calls without a reply are rejected. */
  async end(): Promise<void> {
    this.#refuseAll("it is closed");
    await this.#worker.terminate();
  }

  #settle(reply: Exclude<ThreadReply, { readonly log: string }>): void {
    const waiting = this.#pending.get(reply.id);
    if (waiting === undefined) return;
    this.#pending.delete(reply.id);
    if ("error" in reply) waiting.reject(new LaboroError(reply.error.code, reply.error.message));
    else waiting.resolve(reply.result);
  }

  #refuseAll(why: string, cause?: unknown): void {
    this.#failure ??= new LaboroError("LABORO_STORE_FAILED", `the store cannot answer: ${why}`, { cause });
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
  }
}
