/**
 * The workers of the protocol text: threads that share one connection under a lock. Each is in one of its states:
 *
 *   2  WorkerLoop     has nothing to do and would ask
 *   3  RunJob         asks, receives or runs a job
 *   4  SendOutcome    its job has ended; the result waits for the lock, or is being delivered
 *   5  WaitClose      has ended, as MASTERSTOP is raised; the last one says FINO ANKAU
 *   6  ClientOnHold   was told ATENDI and waits ten seconds. Meanwhile no other thread asks
 *
 * Results go before questions. While the connection is down nothing is said: threads go on running, results gather, and all of that goes
 * out when it is back. Pure: no socket, no clock, no process.
 */
import type { Job, NoJob } from "../client-states.js";

export type ThreadState = "WorkerLoop" | "RunJob" | "SendOutcome" | "WaitClose" | "ClientOnHold";

export interface ThreadsPorts<Outcome> {
  /** Whether another job may be asked for; where not, `lookAgain` is to follow. */
  mayAsk(): boolean;
  ask(): void;
  deliver(outcome: Outcome): void;
  start(thread: number, job: Job): void;
  leave(): void;
  /** Say `holdOver` in ten seconds. */
  holds(): void;
}

interface Thread {
  state: ThreadState;
  /** What it runs. */
  job?: Job;
}

/** What the lock is held for. */
type Exchange<Outcome> =
  | { readonly is: "question"; readonly thread: number }
  | { readonly is: "result"; readonly waiting: Waiting<Outcome> };

interface Waiting<Outcome> {
  readonly outcome: Outcome;
  /** Absent for a result that an earlier life of this runner has left. */
  readonly thread?: number;
}

export class Threads<Outcome> {
  readonly #ports: ThreadsPorts<Outcome>;
  readonly #threads: Thread[];
  #up = false;
  #exchange: Exchange<Outcome> | undefined;
  #results: Waiting<Outcome>[] = [];
  /** MASTERSTOP: no thread asks any more. */
  #stopped = false;
  #left = false;
  /** The one that was told ATENDI; it alone asks, once `over`. */
  #hold: { readonly thread: number; over: boolean } | undefined;

  constructor(count: number, ports: ThreadsPorts<Outcome>) {
    this.#ports = ports;
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

  /** What an earlier life of this runner did not get to deliver. */
  owe(outcomes: readonly Outcome[]): void {
    for (const outcome of outcomes) this.#results.push({ outcome });
  }

  lineUp(): void {
    this.#up = true;
    this.lookAgain();
  }

  lineDown(): void {
    this.#up = false;
    const exchange = this.#exchange;
    this.#exchange = undefined;
    if (exchange?.is === "question") this.#set(exchange.thread, "WorkerLoop");
    if (this.#hold !== undefined) this.#set(this.#hold.thread, "WorkerLoop");
    this.#hold = undefined;
  }

  job(job: Job): void {
    const thread = this.#answered();
    if (thread === undefined) return;
    this.#hold = undefined;
    // After a reconnect the manager may hand out anew what runs here since before.
    const same = this.#threads.some(({ job: running }) => running !== undefined && isSame(running, job));
    if (same) {
      this.#set(thread, "WorkerLoop");
    } else {
      this.#threads[thread] = { state: "RunJob", job };
      this.#ports.start(thread, job);
    }
    this.lookAgain();
  }

  noJob(answer: NoJob): void {
    const thread = this.#answered();
    if (thread === undefined) return;
    if (answer === "ATENDI") {
      this.#set(thread, "ClientOnHold");
      this.#hold = { thread, over: false };
      this.#ports.holds();
    } else {
      this.#set(thread, "WorkerLoop");
      this.#stopped = true;
    }
    this.lookAgain();
  }

  holdOver(): void {
    if (this.#hold === undefined) return;
    this.#hold.over = true;
    this.#set(this.#hold.thread, "WorkerLoop");
    this.lookAgain();
  }

  /** The job of this thread has ended. */
  finished(thread: number, outcome: Outcome): void {
    this.#threads[thread] = { state: "SendOutcome" };
    this.#results.push({ outcome, thread });
    this.lookAgain();
  }

  /** The result that is being delivered has arrived, or was given up. */
  delivered(): void {
    const exchange = this.#exchange;
    if (exchange?.is !== "result") return;
    this.#exchange = undefined;
    this.forget(exchange.waiting.outcome);
    this.lookAgain();
  }

  forget(outcome: Outcome): void {
    const at = this.#results.findIndex((waiting) => waiting.outcome === outcome);
    const [gone] = at < 0 ? [] : this.#results.splice(at, 1);
    if (gone?.thread !== undefined) this.#set(gone.thread, "WorkerLoop");
  }

  /** No thread asks any more; what runs may end. */
  stop(): void {
    this.#stopped = true;
    this.lookAgain();
  }

  /** Begins what may be said next, if anything. */
  lookAgain(): void {
    if (this.#stopped) this.#endIdle();
    if (!this.#up || this.#exchange !== undefined || this.#left) return;
    const [waiting] = this.#results;
    if (waiting !== undefined) {
      this.#exchange = { is: "result", waiting };
      this.#ports.deliver(waiting.outcome);
      return;
    }
    if (this.#threads.every(({ state }) => state === "WaitClose")) {
      this.#left = true;
      this.#ports.leave();
      return;
    }
    const thread = this.#asker();
    if (thread === undefined || !this.#ports.mayAsk()) return;
    this.#set(thread, "RunJob");
    this.#exchange = { is: "question", thread };
    this.#ports.ask();
  }

  #asker(): number | undefined {
    if (this.#hold !== undefined) return this.#hold.over ? this.#hold.thread : undefined;
    const idle = this.#threads.findIndex(({ state }) => state === "WorkerLoop");
    return idle < 0 ? undefined : idle;
  }

  #endIdle(): void {
    this.#hold = undefined;
    for (const thread of this.#threads) {
      if (thread.state === "WorkerLoop" || thread.state === "ClientOnHold") thread.state = "WaitClose";
    }
  }

  #answered(): number | undefined {
    const exchange = this.#exchange;
    if (exchange?.is !== "question") return undefined;
    this.#exchange = undefined;
    return exchange.thread;
  }

  #set(at: number, state: ThreadState): void {
    const thread = this.#threads[at];
    if (thread !== undefined) thread.state = state;
  }
}

const isSame = (a: Job, b: Job): boolean => a.name === b.name && a.kind === b.kind && a.content.equals(b.content);
