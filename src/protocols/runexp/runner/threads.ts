/**
 * The workers of the specification: threads that share one connection under a lock. The states of a thread:
 *
 *   2  WorkerLoop     is idle and may request a job
 *   3  RunJob         requests, receives or runs a job
 *   4  SendOutcome    its job has ended; the result waits for the lock, or is being delivered
 *   5  WaitClose      has ended because of MASTERSTOP; the last thread sends FINO ANKAU
 *   6  ClientOnHold   got ATENDI; waits ten seconds, or until another thread gets a job
 *
 * Results take the lock before requests, because after a reconnect the manager would assign finished jobs again. While
 * the connection is down, jobs keep running and results are kept. Pure: no socket, no clock, no process.
 */
import type { NoJobReply } from "../messages.js";
import type { Job } from "./client-state-machine.js";

type ThreadState = "WorkerLoop" | "RunJob" | "SendOutcome" | "WaitClose" | "ClientOnHold";

interface ThreadsCallbacks<Outcome> {
  /** If false, call `sendNext` when a job may be requested. */
  mayRequestJob(): boolean;
  requestJob(): void;
  deliver(outcome: Outcome): void;
  start(thread: number, job: Job): void;
  leave(): void;
  /** Call `holdExpired` in ten seconds. */
  startHoldTimer(thread: number): void;
}

interface Thread {
  state: ThreadState;
  job?: Job;
}

interface QueuedResult<Outcome> {
  readonly thread: number;
  readonly outcome: Outcome;
}

/** The holder of the lock. */
type Exchange<Outcome> =
  | { readonly kind: "request"; readonly thread: number }
  | { readonly kind: "result"; readonly outcome: Outcome };

export class Threads<Outcome> {
  readonly #callbacks: ThreadsCallbacks<Outcome>;
  readonly #threads: Thread[];
  #connected = false;
  #exchange: Exchange<Outcome> | undefined;
  #results: QueuedResult<Outcome>[] = [];
  /** MASTERSTOP: no thread requests jobs any more. */
  #stopped = false;
  #hasLeft = false;

  constructor(count: number, callbacks: ThreadsCallbacks<Outcome>) {
    this.#callbacks = callbacks;
    this.#threads = Array.from({ length: count }, () => ({ state: "WorkerLoop" }));
  }

  get states(): readonly ThreadState[] {
    return this.#threads.map(({ state }) => state);
  }

  /** The next one first. */
  get undelivered(): readonly Outcome[] {
    return this.#results.map(({ outcome }) => outcome);
  }

  get running(): number {
    return this.#threads.filter(({ job }) => job !== undefined).length;
  }

  connected(): void {
    this.#connected = true;
    this.sendNext();
  }

  disconnected(): void {
    this.#connected = false;
    const exchange = this.#exchange;
    this.#exchange = undefined;
    if (exchange?.kind === "request") this.#set(exchange.thread, "WorkerLoop");
    this.#endHolds();
  }

  job(job: Job): void {
    const thread = this.#takeRequester();
    if (thread === undefined) return;
    this.#endHolds();
    // After a reconnect the manager may assign a job again that already runs here.
    const same = this.#threads.some(({ job: running }) => running !== undefined && isSame(running, job));
    if (same) {
      this.#set(thread, "WorkerLoop");
    } else {
      this.#threads[thread] = { state: "RunJob", job };
      this.#callbacks.start(thread, job);
    }
    this.sendNext();
  }

  noJob(answer: NoJobReply): void {
    const thread = this.#takeRequester();
    if (thread === undefined) return;
    if (answer === "ATENDI") {
      this.#set(thread, "ClientOnHold");
      this.#callbacks.startHoldTimer(thread);
    } else {
      this.#set(thread, "WorkerLoop");
      this.#stopped = true;
    }
    this.sendNext();
  }

  holdExpired(thread: number): void {
    if (this.#threads[thread]?.state !== "ClientOnHold") return;
    this.#set(thread, "WorkerLoop");
    this.sendNext();
  }

  finished(thread: number, outcome: Outcome): void {
    this.#threads[thread] = { state: "SendOutcome" };
    this.#results.push({ thread, outcome });
    this.sendNext();
  }

  /** RICEVIS was received. */
  delivered(): void {
    const exchange = this.#exchange;
    if (exchange?.kind !== "result") return;
    this.#exchange = undefined;
    this.forget(exchange.outcome);
    this.sendNext();
  }

  /** The result is delivered or given up: its thread continues. */
  forget(outcome: Outcome): void {
    const at = this.#results.findIndex((queued) => queued.outcome === outcome);
    const [queued] = at < 0 ? [] : this.#results.splice(at, 1);
    if (queued !== undefined) this.#set(queued.thread, "WorkerLoop");
  }

  /** No thread requests jobs any more; running jobs may end. */
  stop(): void {
    this.#stopped = true;
    this.sendNext();
  }

  /** Begins the next exchange with the manager. */
  sendNext(): void {
    if (this.#stopped) this.#endIdle();
    if (!this.#connected || this.#exchange !== undefined || this.#hasLeft) return;
    const [next] = this.#results;
    if (next !== undefined) {
      this.#exchange = { kind: "result", outcome: next.outcome };
      this.#callbacks.deliver(next.outcome);
      return;
    }
    const idle = this.#threads.findIndex(({ state }) => state === "WorkerLoop");
    if (idle >= 0 && this.#callbacks.mayRequestJob()) {
      this.#set(idle, "RunJob");
      this.#exchange = { kind: "request", thread: idle };
      this.#callbacks.requestJob();
    } else if (this.#threads.every(({ state }) => state === "WaitClose")) {
      this.#hasLeft = true;
      this.#callbacks.leave();
    }
  }

  #endHolds(): void {
    for (const thread of this.#threads) if (thread.state === "ClientOnHold") thread.state = "WorkerLoop";
  }

  #endIdle(): void {
    for (const thread of this.#threads) {
      if (thread.state === "WorkerLoop" || thread.state === "ClientOnHold") thread.state = "WaitClose";
    }
  }

  /** The thread that has requested a job. */
  #takeRequester(): number | undefined {
    const exchange = this.#exchange;
    if (exchange?.kind !== "request") return undefined;
    this.#exchange = undefined;
    return exchange.thread;
  }

  #set(at: number, state: ThreadState): void {
    const thread = this.#threads[at];
    if (thread !== undefined) thread.state = state;
  }
}

const isSame = (a: Job, b: Job): boolean => a.name === b.name && a.kind === b.kind && a.content.equals(b.content);
