/**
 * Group commit: while one commit runs, new decisions are collected for the next one. A message is sent when the writes
 * that it depends on are durable, in the order of the decisions. Decisions that are not urgent (dispatch/decisions.ts)
 * are collected for a few milliseconds first.
 *
 *   idle        nothing to write; messages are sent at once
 *   gathering   nothing urgent to write
 *   committing  one batch is at the store, the next is collected
 *   waiting     the disk is full, no file descriptor is left, or the store cannot be reached: the same batch is tried
 *               again, and dispatch is halted. Writes with a caller are refused, at once or, if the store cannot be
 *               reached, after a moment. All others are kept
 *   failed      the store is broken, or this broker's lease on it has ended; `failed` was called
 *   stopped     by `stop`; what the store did not take by then is given up
 */
import { now } from "../base/clock.js";
import { asLaboroError, type LaboroError, passesByItself } from "../base/errors.js";
import type { Decisions, Send } from "../dispatch/index.js";
import type { TaskRangeId } from "../model/ids.js";
import type { OutputChunk, Store, Write, WriteResult } from "../model/store.js";

/** How long decisions that are not urgent may wait, and how many bytes of output. */
const GATHER_MS = 10;
const GATHER_BYTES = 256 * 1024;
const RETRY_MS = 1_000;
/** The first retry if the store cannot be reached, and the time after which callers are refused. */
const FIRST_RETRY_MS = 50;
const REFUSE_AFTER_MS = 3_000;
/** For what is left to write when the broker stops. Nobody was told that it is stored. */
const STOP_MS = 5_000;

interface CommitHandlers {
  /** Passes the store's results to dispatch. Its new decisions come back through `add`. Returns the lost ranges. */
  readonly committed: (writes: readonly Write[], results: readonly WriteResult[]) => ReadonlySet<TaskRangeId>;
  readonly deliver: (send: Send, result: WriteResult | undefined) => void;
  readonly halted: (cause: LaboroError) => void;
  /** Called with true after a successful write, with false if nothing is left to write and the store is untested. */
  readonly resumed: (written: boolean) => void;
  readonly failed: (cause: LaboroError) => void;
}

type Waiter = { readonly resolve: (result: WriteResult) => void; readonly reject: (cause: LaboroError) => void };

class CommitBatch {
  writes: Write[] = [];
  readonly sends: Send[] = [];
  readonly after: (() => void)[] = [];
  readonly waiters = new Map<Write, Waiter>();
  /** Contains a write that must be committed without delay. */
  urgent = false;
  outputBytes = 0;

  get empty(): boolean {
    return this.writes.length === 0 && this.sends.length === 0 && this.after.length === 0;
  }

  /** Refuses the writes with a caller; keeps all others. */
  refuse(cause: LaboroError): void {
    for (const settle of this.waiters.values()) settle.reject(cause);
    this.writes = this.writes.filter((write) => !this.waiters.has(write));
    this.waiters.clear();
  }
}

export class CommitLoop {
  readonly #store: Store;
  readonly #handlers: CommitHandlers;
  #next = new CommitBatch();
  #running = false;
  #scheduled = false;
  #gathering: NodeJS.Timeout | undefined;
  #unavailable: LaboroError | undefined;
  /** Failed tries since the last commit, and the time of the first. */
  #failedTries = { tries: 0, since: 0 };
  #failed: LaboroError | undefined;
  /** Moving average of the duration of a commit. */
  averageMs = 0;
  #idleWaiters: (() => void)[] = [];
  #stopped = false;

  constructor(store: Store, handlers: CommitHandlers) {
    this.#store = store;
    this.#handlers = handlers;
  }

  /** Why nothing new is accepted: a full disk, no file descriptor, or an unreachable store. */
  get refusing(): LaboroError | undefined {
    return this.#failed ?? this.#unavailable;
  }

  /** Commits and sends decisions; `after` is called when they are durable. */
  add(decisions: Decisions, after?: () => void): void {
    const batch = this.#next;
    for (const write of decisions.writes) batch.writes.push(write);
    for (const send of decisions.sends) batch.sends.push(send);
    if (after !== undefined) batch.after.push(after);
    batch.urgent ||= decisions.urgent;
    this.#schedule();
  }

  /** Commits output. `after`: it is durable. A large amount does not delay the sender before its window is full. */
  addOutput(chunks: readonly OutputChunk[], urgent: boolean, after: () => void): void {
    const batch = this.#next;
    batch.writes.push({ op: "output", chunks });
    batch.after.push(after);
    for (const { bytes } of chunks) batch.outputBytes += bytes.length;
    batch.urgent ||= urgent || batch.outputBytes >= GATHER_BYTES;
    this.#schedule();
  }

  /** Commits a write whose caller waits for the result. It may be refused. */
  commit(write: Write): Promise<WriteResult> {
    const refusing = this.refusing;
    if (refusing !== undefined) return Promise.reject(refusing);
    return new Promise((resolve, reject) => {
      this.#next.writes.push(write);
      this.#next.waiters.set(write, { resolve, reject });
      this.#next.urgent = true;
      this.#schedule();
    });
  }

  /** Commits what is left, unless the store refuses it or does not answer in time. */
  async stop(): Promise<void> {
    if (this.refusing === undefined && (this.#running || !this.#next.empty)) {
      this.#next.urgent = true;
      this.#schedule();
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#idleWaiters.push(resolve);
        timer = setTimeout(resolve, STOP_MS);
      });
      clearTimeout(timer);
    }
    this.#stopped = true;
  }

  #schedule(): void {
    if (this.#running || this.#scheduled || this.#next.empty) return;
    if (!this.#next.urgent) {
      this.#gathering ??= setTimeout(() => {
        this.#next.urgent = true;
        this.#start();
      }, GATHER_MS);
      return;
    }
    this.#scheduled = true;
    // All decisions of this turn of the event loop go into one batch.
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#start();
    });
  }

  #start(): void {
    clearTimeout(this.#gathering);
    this.#gathering = undefined;
    if (!this.#running) void this.#run();
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (!this.#next.empty && this.#next.urgent && this.#failed === undefined) {
      const batch = this.#next;
      this.#next = new CommitBatch();
      await this.#commitBatch(batch);
    }
    this.#running = false;
    if (this.#idleWaiters.length > 0 && this.#failed === undefined) this.#next.urgent = true;
    if (!this.#next.empty && this.#failed === undefined) this.#schedule();
    else for (const resolve of this.#idleWaiters.splice(0)) resolve();
  }

  async #commitBatch(batch: CommitBatch): Promise<void> {
    let results: readonly WriteResult[] = [];
    while (batch.writes.length > 0) {
      const begun = now();
      try {
        results = await this.#store.commit(batch.writes, begun);
        this.averageMs += (now() - begun - this.averageMs) / 8;
        break;
      } catch (cause) {
        if (!(await this.#mayTryAgain(batch, asLaboroError(cause)))) return;
      }
    }
    this.#failedTries = { tries: 0, since: 0 };
    if (this.#unavailable !== undefined) {
      this.#unavailable = undefined;
      this.#handlers.resumed(batch.writes.length > 0);
    }
    this.#finish(batch, results);
  }

  async #mayTryAgain(batch: CommitBatch, cause: LaboroError): Promise<boolean> {
    if (this.#stopped) {
      batch.refuse(cause);
      return false;
    }
    const unreachable = cause.code === "LABORO_STORE_UNAVAILABLE";
    const { tries, since } = this.#failedTries;
    this.#failedTries = { tries: tries + 1, since: tries === 0 ? now() : since };
    if (!unreachable || now() - this.#failedTries.since > REFUSE_AFTER_MS) {
      batch.refuse(cause);
      this.#next.refuse(cause);
      if (!unreachable && !passesByItself(cause.code)) {
        this.#failed = cause;
        this.#handlers.failed(cause);
        return false;
      }
      if (this.#unavailable === undefined) this.#handlers.halted(cause);
      this.#unavailable = cause;
    }
    // No event tells that a disk has space again, or that a server is back.
    const pause = unreachable ? Math.min(RETRY_MS, FIRST_RETRY_MS * 2 ** tries) : RETRY_MS;
    await new Promise((resolve) => setTimeout(resolve, pause).unref());
    return true;
  }

  #finish(batch: CommitBatch, results: readonly WriteResult[]): void {
    const lost = this.#handlers.committed(batch.writes, results);
    const claims = new Map<TaskRangeId, WriteResult>();
    batch.writes.forEach((write, i) => {
      const result = results[i];
      if (result === undefined) return;
      if (write.op === "claim") claims.set(write.rangeId, result);
      batch.waiters.get(write)?.resolve(result);
    });
    for (const send of batch.sends) {
      if (send.kind !== "tasks") this.#handlers.deliver(send, undefined);
      else if (!lost.has(send.rangeId)) this.#handlers.deliver(send, claims.get(send.rangeId));
    }
    for (const after of batch.after) after();
  }
}
