/**
 * Group commit without a timer: while one commit runs, what is decided gathers; when it ends, all of that is the next one.
 * What is to be sent goes when the writes it rests on are durable, in the order it was decided. Where the store allows it, results that
 * nothing is sent for gather for a while before they are a commit.
 *
 *   idle        nothing to write; sends go at once
 *   gathering   there is nothing but results, which may wait
 *   committing  one batch is at the store, the next gathers
 *   waiting     the disk is full or the store cannot be reached: the same batch is tried again. Dispatch is halted, what can be
 *               refused was refused, everything else is kept. A store out of reach is mostly back in a moment, so for a
 *               moment nobody is refused
 *   failed      the store is broken, or this broker's lease on it has ended; the broker has been told
 */

import { now } from "../base/clock.js";
import { asLaboroError, type LaboroError } from "../base/errors.js";
import type { Decisions, Send } from "../dispatch/index.js";
import type { TaskRangeId } from "../model/ids.js";
import type { WriteResult, Store, Write } from "../model/store.js";

const RETRY_MS = 1_000;
/** A store out of reach is asked again after this time at first, and those who wait are refused after the other. */
const FIRST_RETRY_MS = 50;
const REFUSE_AFTER_MS = 3_000;

export interface CommitHandlers {
  /** Dispatch learns what the store said; its new decisions come back through `add`. Returns the parcels that were lost. */
  readonly committed: (writes: readonly Write[], answers: readonly WriteResult[]) => ReadonlySet<TaskRangeId>;
  readonly deliver: (send: Send, answer: WriteResult | undefined) => void;
  readonly halted: (cause: LaboroError) => void;
  /** Something was written again; or nothing is left to write, so that only new work can tell whether it can be. */
  readonly resumed: (written: boolean) => void;
  readonly failed: (cause: LaboroError) => void;
}

type Waiter = { readonly resolve: (answer: WriteResult) => void; readonly reject: (cause: LaboroError) => void };

class CommitBatch {
  writes: Write[] = [];
  readonly sends: Send[] = [];
  readonly after: (() => void)[] = [];
  readonly waiters = new Map<Write, Waiter>();
  /** There is something in it that is waited for. */
  urgent = false;

  get empty(): boolean {
    return this.writes.length === 0 && this.sends.length === 0 && this.after.length === 0;
  }

  /** What somebody waits for can be refused; the rest is ours to keep. */
  refuse(cause: LaboroError): void {
    for (const settle of this.waiters.values()) settle.reject(cause);
    this.writes = this.writes.filter((write) => !this.waiters.has(write));
    this.waiters.clear();
  }
}

export class CommitLoop {
  readonly #store: Store;
  readonly #ports: CommitHandlers;
  #next = new CommitBatch();
  #running = false;
  #scheduled = false;
  #gathering: NodeJS.Timeout | undefined;
  #unavailable: LaboroError | undefined;
  /** Tries in vain since the last commit, and when the first of them was. */
  #failedTries = { tries: 0, since: 0 };
  #failed: LaboroError | undefined;
  /** How long a commit takes, of late. */
  averageMs = 0;
  #idleWaiters: (() => void)[] = [];

  constructor(store: Store, ports: CommitHandlers) {
    this.#store = store;
    this.#ports = ports;
  }

  /** The disk is full, or the store has been out of reach for a while: nothing new can be taken. */
  get refusing(): LaboroError | undefined {
    return this.#failed ?? this.#unavailable;
  }

  /** Store and send what was decided; `after` is called when it is durable. */
  add(decisions: Decisions, after?: () => void): void {
    const batch = this.#next;
    for (const write of decisions.writes) batch.writes.push(write);
    for (const send of decisions.sends) batch.sends.push(send);
    if (after !== undefined) batch.after.push(after);
    batch.urgent ||= !this.#mayGather(decisions);
    this.#schedule();
  }

  /** Store bytes or the like; `after` is called when they are durable. */
  write(write: Write, after: () => void): void {
    this.#next.writes.push(write);
    this.#next.after.push(after);
    this.#next.urgent = true;
    this.#schedule();
  }

  /** A write whose answer somebody waits for, and which may therefore be refused. */
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

  /** Resolves when nothing is left to write. */
  flush(): Promise<void> {
    if (!this.#running && this.#next.empty) return Promise.resolve();
    this.#next.urgent = true;
    this.#schedule();
    return new Promise((resolve) => this.#idleWaiters.push(resolve));
  }

  #mayGather({ writes, sends }: Decisions): boolean {
    if ((this.#store.commitDelayMs ?? 0) === 0) return false;
    return sends.length === 0 && writes.length > 0 && writes.every(({ op }) => op === "settle");
  }

  #schedule(): void {
    if (this.#running || this.#scheduled || this.#next.empty) return;
    if (!this.#next.urgent) {
      this.#gathering ??= setTimeout(() => {
        this.#next.urgent = true;
        this.#start();
      }, this.#store.commitDelayMs);
      return;
    }
    this.#scheduled = true;
    // All that this turn of the event loop decides goes in one batch.
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
    let answers: readonly WriteResult[] = [];
    while (batch.writes.length > 0) {
      const begun = now();
      try {
        answers = await this.#store.commit(batch.writes, begun);
        this.averageMs += (now() - begun - this.averageMs) / 8;
        break;
      } catch (cause) {
        if (!(await this.#mayTryAgain(batch, asLaboroError(cause)))) return;
      }
    }
    this.#failedTries = { tries: 0, since: 0 };
    if (this.#unavailable !== undefined) {
      this.#unavailable = undefined;
      this.#ports.resumed(batch.writes.length > 0);
    }
    this.#finish(batch, answers);
  }

  async #mayTryAgain(batch: CommitBatch, cause: LaboroError): Promise<boolean> {
    const away = cause.code === "LABORO_STORE_UNAVAILABLE";
    const { tries, since } = this.#failedTries;
    this.#failedTries = { tries: tries + 1, since: tries === 0 ? now() : since };
    if (!away || now() - this.#failedTries.since > REFUSE_AFTER_MS) {
      batch.refuse(cause);
      this.#next.refuse(cause);
      if (!away && cause.code !== "LABORO_DISK_FULL") {
        this.#failed = cause;
        this.#ports.failed(cause);
        return false;
      }
      if (this.#unavailable === undefined) this.#ports.halted(cause);
      this.#unavailable = cause;
    }
    // Nothing tells when a disk has room again, or a server is back.
    const pause = away ? Math.min(RETRY_MS, FIRST_RETRY_MS * 2 ** tries) : RETRY_MS;
    await new Promise((resolve) => setTimeout(resolve, pause).unref());
    return true;
  }

  #finish(batch: CommitBatch, answers: readonly WriteResult[]): void {
    const lost = this.#ports.committed(batch.writes, answers);
    const claims = new Map<TaskRangeId, WriteResult>();
    batch.writes.forEach((write, i) => {
      const answer = answers[i];
      if (answer === undefined) return;
      if (write.op === "claim") claims.set(write.rangeId, answer);
      batch.waiters.get(write)?.resolve(answer);
    });
    for (const send of batch.sends) {
      if (send.kind !== "tasks") this.#ports.deliver(send, undefined);
      else if (!lost.has(send.rangeId)) this.#ports.deliver(send, claims.get(send.rangeId));
    }
    for (const after of batch.after) after();
  }
}
