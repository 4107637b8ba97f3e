/**
 * The broker's end of the database's thread: calls out, replies in. Every call gets its reply; where the thread dies, every
 * waiting call and every later one is refused with LABORO_STORE_FAILED.
 */
import * as fs from "node:fs";
import { Worker } from "node:worker_threads";
import { LaboroError } from "../../base/errors.js";
import type { CallName, Calls, Reply, ThreadData } from "./messages.js";

interface Waiting {
  readonly resolve: (gives: unknown) => void;
  readonly reject: (error: LaboroError) => void;
}

export class ThreadCalls {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #count = 0;
  #gone: LaboroError | undefined;

  constructor(data: ThreadData, log: (line: string) => void, file: URL = threadFile()) {
    this.#worker = new Worker(file, { workerData: data, name: "laboro-store" });
    this.#worker.on("message", (reply: Reply) => {
      if ("log" in reply) log(reply.log);
      else this.#settle(reply);
    });
    this.#worker.on("error", (cause) => this.#refuseAll(`its thread failed: ${cause.message}`, cause));
    this.#worker.on("exit", (code) => this.#refuseAll(`its thread has ended (${code})`));
  }

  call<Name extends CallName>(
    call: Name,
    asks: Calls[Name]["asks"],
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<Calls[Name]["gives"]> {
    if (this.#gone !== undefined) return Promise.reject(this.#gone);
    const id = ++this.#count;
    return new Promise<Calls[Name]["gives"]>((resolve, reject) => {
      // The thread answers each call with what Calls says of it.
      this.#waiting.set(id, { resolve: resolve as (gives: unknown) => void, reject });
      this.#worker.postMessage({ id, call, asks }, transfer);
    });
  }

  /** Ends the thread; what it still had to answer is refused. */
  async end(): Promise<void> {
    this.#refuseAll("it is closed");
    await this.#worker.terminate();
  }

  #settle(reply: Exclude<Reply, { log: string }>): void {
    const waiting = this.#waiting.get(reply.id);
    if (waiting === undefined) return;
    this.#waiting.delete(reply.id);
    if ("error" in reply) waiting.reject(new LaboroError(reply.error.code, reply.error.message));
    else waiting.resolve(reply.gives);
  }

  #refuseAll(why: string, cause?: unknown): void {
    this.#gone ??= new LaboroError("LABORO_STORE_FAILED", `the store cannot answer: ${why}`, { cause });
    for (const { reject } of this.#waiting.values()) reject(this.#gone);
    this.#waiting.clear();
  }
}

/** Node runs no TypeScript in a thread: from the sources, as in tests, the compiled thread is used. */
function threadFile(): URL {
  const beside = new URL("./thread.js", import.meta.url);
  return fs.existsSync(beside) ? beside : new URL("../../../dist/store/sqlite/thread.js", import.meta.url);
}
