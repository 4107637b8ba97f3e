/**
 * The workers of the protocol text: threads that share one connection under a lock. Each is in one of its states:
 *
 *   2  WorkerLoop     has nothing to do and may request a job
 *   3  RunJob         requests, receives or runs a job
 *   4  SendOutcome    its job has ended, and more results wait for the lock than there are threads
 *   5  WaitClose      has ended, as MASTERSTOP is raised; the last one sends FINO ANKAU
 *   6  ClientOnHold   got ATENDI and waits ten seconds, or until another gets a job. Where results were undelivered when it requested a
 *                     job, it requests again when they are delivered: that may be why there was nothing
 *
 * A thread whose job has ended requests the next one before its result goes out, because the manager answers a result only when that is
 * on its disk. While jobs are short and the manager is laboro's, one more is prefetched when all threads are busy and nothing else is to be
 * sent, so that the next thread to end need not wait; a prefetched job that waits too long for a thread is returned.
 *
 * While the connection is down nothing is sent: jobs go on running, and results gather. When it is back these go out before any request, or
 * the manager would assign again what is done. Pure: no socket, no clock, no process.
 */
import type { Job, NoJobReply } from "./client-state-machine.js";

export type ThreadState = "WorkerLoop" | "RunJob" | "SendOutcome" | "WaitClose" | "ClientOnHold";

export interface ThreadsCallbacks<Outcome> {
  /** Whether another job may be requested; where not, `sendNext` is to follow when it may. */
  mayRequestJob(): boolean;
  requestJob(): void;
  deliver(outcome: Outcome): void;
  start(thread: number, job: Job): void;
  /** Whether one job more than there are threads may be requested. */
  mayPrefetch(): boolean;
  /** A prefetched job waits for a thread: call `returnPrefetched` if it still does after a moment. */
  startPrefetchTimer(): void;
  /** This job was not begun. */
  returnJob(name: string): void;
  leave(): void;
  /** Call `holdExpired` for this thread in ten seconds. */
  startHoldTimer(thread: number): void;
}

interface Thread {
  state: ThreadState;
  /** What it runs. */
  job?: Job;
  /** On hold; there were results to deliver when it requested a job. */
  untilDelivered?: boolean;
}

/** What the lock is held for. */
type Exchange<Outcome> =
  | { readonly kind: "request"; readonly thread: number }
  | { readonly kind: "prefetch" }
  | { readonly kind: "result"; readonly result: QueuedResult<Outcome> };

interface QueuedResult<Outcome> {
  readonly outcome: Outcome;
  /** Its job was assigned over an earlier connection. */
  late: boolean;
}

export class Threads<Outcome> {
  readonly #callbacks: ThreadsCallbacks<Outcome>;
  readonly #threads: Thread[];
  #connected = false;
  #exchange: Exchange<Outcome> | undefined;
  #results: QueuedResult<Outcome>[] = [];
  /** Waits for a thread. */
  #prefetched: Job | undefined;
  /** To be returned to the manager. */
  #jobsToReturn: string[] = [];
  /** There was no job to prefetch, or it was returned: not tried again before a thread has had one. */
  #prefetchBlocked = false;
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

  get stopped(): boolean {
    return this.#stopped;
  }

  connected(): void {
    this.#connected = true;
    this.sendNext();
  }

  disconnected(): void {
    this.#connected = false;
    const exchange = this.#exchange;
    this.#exchange = undefined;
    for (const waiting of this.#results) waiting.late = true;
    // The manager assigns it again.
    this.#prefetched = undefined;
    this.#jobsToReturn = [];
    if (exchange?.kind === "request") this.#set(exchange.thread, "WorkerLoop");
    this.#wake(() => true);
  }

  job(job: Job): void {
    const thread = this.#takeRequester();
    if (thread === undefined) return;
    this.#wake(() => true);
    if (thread !== "prefetch") this.#prefetchBlocked = false;
    // After a reconnect the manager may assign again what already runs here.
    const same = this.#threads.some(({ job: running }) => running !== undefined && isSame(running, job));
    if (thread === "prefetch") {
      if (!same) this.#keepPrefetched(job);
    } else if (same) {
      this.#set(thread, "WorkerLoop");
    } else {
      this.#start(thread, job);
    }
    this.sendNext();
  }

  #start(thread: number, job: Job): void {
    this.#threads[thread] = { state: "RunJob", job };
    this.#callbacks.start(thread, job);
  }

  #keepPrefetched(job: Job): void {
    this.#prefetched = job;
    if (this.#stopped) this.returnPrefetched();
    else this.#startPrefetched();
    if (this.#prefetched !== undefined) this.#callbacks.startPrefetchTimer();
  }

  #startPrefetched(): void {
    const job = this.#prefetched;
    const thread = this.#idleThread();
    if (job === undefined || thread === undefined) return;
    this.#prefetched = undefined;
    this.#start(thread, job);
  }

  /** The prefetched job has waited for a thread too long. */
  returnPrefetched(): void {
    if (this.#prefetched === undefined) return;
    this.#jobsToReturn.push(this.#prefetched.name);
    this.#prefetched = undefined;
    this.#prefetchBlocked = true;
    this.sendNext();
  }

  noJob(answer: NoJobReply): void {
    const thread = this.#takeRequester();
    if (thread === undefined) return;
    if (thread === "prefetch") {
      if (answer === "ATENDI") this.#prefetchBlocked = true;
      else this.#stopped = true;
      this.sendNext();
      return;
    }
    if (answer === "ATENDI") {
      this.#threads[thread] = { state: "ClientOnHold", untilDelivered: this.#results.length > 0 };
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
    this.#results.push({ outcome, late: !this.#connected });
    this.#resumeThread();
    this.sendNext();
  }

  /** The result that is being delivered has arrived, or was given up. */
  delivered(): void {
    const exchange = this.#exchange;
    if (exchange?.kind !== "result") return;
    this.#exchange = undefined;
    this.forget(exchange.result.outcome);
    this.sendNext();
  }

  forget(outcome: Outcome): void {
    const at = this.#results.findIndex((waiting) => waiting.outcome === outcome);
    if (at >= 0) this.#results.splice(at, 1);
    this.#resumeThread();
    if (this.#results.length === 0) this.#wake(({ untilDelivered }) => untilDelivered === true);
  }

  /** A thread that has waited because too many results are undelivered goes on. */
  #resumeThread(): void {
    if (this.#results.length > this.#threads.length) return;
    const at = this.#threads.findIndex(({ state }) => state === "SendOutcome");
    if (at >= 0) this.#set(at, "WorkerLoop");
    this.#startPrefetched();
  }

  /** No thread requests jobs any more; what runs may end. */
  stop(): void {
    this.#stopped = true;
    this.returnPrefetched();
    this.sendNext();
  }

  /** Begins the next exchange with the manager, if there is one. */
  sendNext(): void {
    if (this.#stopped) this.#endIdle();
    if (!this.#connected || this.#exchange !== undefined || this.#hasLeft) return;
    for (const name of this.#jobsToReturn.splice(0)) this.#callbacks.returnJob(name);
    const [waiting] = this.#results;
    if (waiting?.late !== true && this.#requestJob()) return;
    if (waiting !== undefined) {
      this.#exchange = { kind: "result", result: waiting };
      this.#callbacks.deliver(waiting.outcome);
      return;
    }
    if (this.#prefetch()) return;
    if (this.#threads.every(({ state }) => state === "WaitClose")) {
      this.#hasLeft = true;
      this.#callbacks.leave();
    }
  }

  /** False where no thread is idle, or none may request a job. */
  #requestJob(): boolean {
    const thread = this.#idleThread();
    if (thread === undefined || !this.#callbacks.mayRequestJob()) return false;
    this.#set(thread, "RunJob");
    this.#exchange = { kind: "request", thread };
    this.#callbacks.requestJob();
    return true;
  }

  #prefetch(): boolean {
    if (this.#stopped || this.#prefetched !== undefined || this.#prefetchBlocked) return false;
    if (this.#threads.some(({ job }) => job === undefined) || !this.#callbacks.mayPrefetch()) return false;
    this.#exchange = { kind: "prefetch" };
    this.#callbacks.requestJob();
    return true;
  }

  #idleThread(): number | undefined {
    const idle = this.#threads.findIndex(({ state }) => state === "WorkerLoop");
    return idle < 0 ? undefined : idle;
  }

  #wake(which: (thread: Thread) => boolean): void {
    for (const [at, thread] of this.#threads.entries()) {
      if (thread.state === "ClientOnHold" && which(thread)) this.#set(at, "WorkerLoop");
    }
  }

  #endIdle(): void {
    for (const thread of this.#threads) {
      if (thread.state === "WorkerLoop" || thread.state === "ClientOnHold") thread.state = "WaitClose";
    }
  }

  /** Which thread has requested a job. */
  #takeRequester(): number | "prefetch" | undefined {
    const exchange = this.#exchange;
    if (exchange === undefined || exchange.kind === "result") return undefined;
    this.#exchange = undefined;
    return exchange.kind === "request" ? exchange.thread : "prefetch";
  }

  #set(at: number, state: ThreadState): void {
    const thread = this.#threads[at];
    if (thread !== undefined) thread.state = state;
  }
}

const isSame = (a: Job, b: Job): boolean => a.name === b.name && a.kind === b.kind && a.content.equals(b.content);
