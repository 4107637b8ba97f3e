/**
 * The workers of the protocol text: threads that share one connection under a lock. Each is in one of its states:
 *
 *   2  WorkerLoop     has nothing to do and may request a job
 *   3  RunJob         requests, receives or runs a job
 *   4  SendOutcome    its job has ended; its result waits for the lock, or is being delivered
 *   5  WaitClose      has ended, as MASTERSTOP is raised; the last one sends FINO ANKAU
 *   6  ClientOnHold   got ATENDI and waits ten seconds, or until another thread gets a job: then the hold is over
 *
 * Results take the lock before requests. After a reconnect this matters: the manager would assign again what is done.
 *
 * While the connection is down nothing is sent: jobs go on running, and results are kept. Pure: no socket, no clock, no process.
 */
import type { NoJobReply } from "../messages.js";
import type { Job } from "./client-state-machine.js";

export type ThreadState = "WorkerLoop" | "RunJob" | "SendOutcome" | "WaitClose" | "ClientOnHold";

export interface ThreadsCallbacks<Outcome> {
  /** Whether another job may be requested; where not, `sendNext` is to follow when it may. */
  mayRequestJob(): boolean;
  requestJob(): void;
  deliver(outcome: Outcome): void;
  start(thread: number, job: Job): void;
  leave(): void;
  /** Call `holdExpired` for this thread in ten seconds. */
  startHoldTimer(thread: number): void;
}

interface Thread {
  state: ThreadState;
  /** What it runs. */
  job?: Job;
}

/** A result that is not delivered, and the thread that waits for it. */
interface QueuedResult<Outcome> {
  readonly thread: number;
  readonly outcome: Outcome;
}

/** What the lock is held for. */
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

  /** Results that are not delivered, the next one first. */
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
    // After a reconnect the manager may assign again what already runs here.
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

  /** This thread has been on hold for ten seconds. */
  holdExpired(thread: number): void {
    if (this.#threads[thread]?.state !== "ClientOnHold") return;
    this.#set(thread, "WorkerLoop");
    this.sendNext();
  }

  /** The job of this thread has ended. */
  finished(thread: number, outcome: Outcome): void {
    this.#threads[thread] = { state: "SendOutcome" };
    this.#results.push({ thread, outcome });
    this.sendNext();
  }

  /** The result that is being delivered has arrived. */
  delivered(): void {
    const exchange = this.#exchange;
    if (exchange?.kind !== "result") return;
    this.#exchange = undefined;
    this.forget(exchange.outcome);
    this.sendNext();
  }

  /** This result is delivered, or given up: its thread goes on. */
  forget(outcome: Outcome): void {
    const at = this.#results.findIndex((queued) => queued.outcome === outcome);
    const [queued] = at < 0 ? [] : this.#results.splice(at, 1);
    if (queued !== undefined) this.#set(queued.thread, "WorkerLoop");
  }

  /** No thread requests jobs any more; what runs may end. */
  stop(): void {
    this.#stopped = true;
    this.sendNext();
  }

  /** Begins the next exchange with the manager, if there is one. */
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

  /** Which thread has requested a job. */
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
