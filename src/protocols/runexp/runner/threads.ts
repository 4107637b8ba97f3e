/**
 * The workers of the protocol text: threads that share one connection under a lock. Each is in one of its states:
 *
 *   2  WorkerLoop     has nothing to do and would ask
 *   3  RunJob         asks, receives or runs a job
 *   4  SendOutcome    its job has ended, and more results wait for the lock than there are threads
 *   5  WaitClose      has ended, as MASTERSTOP is raised; the last one says FINO ANKAU
 *   6  ClientOnHold   was told ATENDI and waits ten seconds, or until another gets a job. Where its result had not been delivered when it
 *                     asked, it asks again when that is: it may have been for this that there was nothing
 *
 * A thread whose job has ended asks for the next one before its result goes out, because the manager answers a result only when that is
 * on its disk. While jobs are short and the manager is one of ours, one more is asked for when all threads are busy and nothing else is to
 * be said, so that the next thread to end need not wait; one that waits too long for that goes back.
 *
 * While the connection is down nothing is said: threads go on running, and results gather. When it is back these go out before anything is
 * asked, or the manager would hand out anew what is done. Pure: no socket, no clock, no process.
 */
import type { Job, NoJob } from "./client-states.js";

export type ThreadState = "WorkerLoop" | "RunJob" | "SendOutcome" | "WaitClose" | "ClientOnHold";

export interface ThreadsPorts<Outcome> {
  /** Whether another job may be asked for; where not, `lookAgain` is to follow. */
  mayAsk(): boolean;
  ask(): void;
  deliver(outcome: Outcome): void;
  start(thread: number, job: Job): void;
  /** Whether one more may be asked for than there are threads. */
  mayAskAhead(): boolean;
  /** A job waits for a thread: say `returnAhead` if it still does in a moment. */
  waitsAhead(): void;
  /** This job was not begun. */
  giveBack(name: string): void;
  leave(): void;
  /** Say `holdOver` of this thread in ten seconds. */
  holds(thread: number): void;
}

interface Thread {
  state: ThreadState;
  /** What it runs. */
  job?: Job;
  /** On hold; there were results to deliver when it asked. */
  untilDelivered?: boolean;
}

/** What the lock is held for. */
type Exchange<Outcome> =
  | { readonly is: "question"; readonly thread: number }
  | { readonly is: "question ahead" }
  | { readonly is: "result"; readonly waiting: Waiting<Outcome> };

interface Waiting<Outcome> {
  readonly outcome: Outcome;
  /** Its job was handed out over an earlier connection. */
  late: boolean;
}

export class Threads<Outcome> {
  readonly #ports: ThreadsPorts<Outcome>;
  readonly #threads: Thread[];
  #up = false;
  #exchange: Exchange<Outcome> | undefined;
  #results: Waiting<Outcome>[] = [];
  /** Asked for ahead, and waiting for a thread. */
  #ahead: Job | undefined;
  /** To be given back. */
  #returning: string[] = [];
  /** There was none ahead, or it went back: it is no use to ask again before a thread has had one. */
  #noneAhead = false;
  /** MASTERSTOP: no thread asks any more. */
  #stopped = false;
  #left = false;

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

  lineUp(): void {
    this.#up = true;
    this.lookAgain();
  }

  lineDown(): void {
    this.#up = false;
    const exchange = this.#exchange;
    this.#exchange = undefined;
    for (const waiting of this.#results) waiting.late = true;
    // Whoever is there next hands it out anew.
    this.#ahead = undefined;
    this.#returning = [];
    if (exchange?.is === "question") this.#set(exchange.thread, "WorkerLoop");
    this.#wake(() => true);
  }

  job(job: Job): void {
    const thread = this.#answered();
    if (thread === undefined) return;
    this.#wake(() => true);
    if (thread !== "ahead") this.#noneAhead = false;
    // After a reconnect the manager may hand out anew what runs here since before.
    const same = this.#threads.some(({ job: running }) => running !== undefined && isSame(running, job));
    if (thread === "ahead") {
      if (!same) this.#keepAhead(job);
    } else if (same) {
      this.#set(thread, "WorkerLoop");
    } else {
      this.#start(thread, job);
    }
    this.lookAgain();
  }

  #start(thread: number, job: Job): void {
    this.#threads[thread] = { state: "RunJob", job };
    this.#ports.start(thread, job);
  }

  #keepAhead(job: Job): void {
    this.#ahead = job;
    if (this.#stopped) this.returnAhead();
    else this.#startAhead();
    if (this.#ahead !== undefined) this.#ports.waitsAhead();
  }

  #startAhead(): void {
    const job = this.#ahead;
    const thread = this.#asker();
    if (job === undefined || thread === undefined) return;
    this.#ahead = undefined;
    this.#start(thread, job);
  }

  /** What was asked for ahead has waited for a thread too long. */
  returnAhead(): void {
    if (this.#ahead === undefined) return;
    this.#returning.push(this.#ahead.name);
    this.#ahead = undefined;
    this.#noneAhead = true;
    this.lookAgain();
  }

  noJob(answer: NoJob): void {
    const thread = this.#answered();
    if (thread === undefined) return;
    if (thread === "ahead") {
      if (answer === "ATENDI") this.#noneAhead = true;
      else this.#stopped = true;
      this.lookAgain();
      return;
    }
    if (answer === "ATENDI") {
      this.#threads[thread] = { state: "ClientOnHold", untilDelivered: this.#results.length > 0 };
      this.#ports.holds(thread);
    } else {
      this.#set(thread, "WorkerLoop");
      this.#stopped = true;
    }
    this.lookAgain();
  }

  /** This thread has been on hold for ten seconds. */
  holdOver(thread: number): void {
    if (this.#threads[thread]?.state !== "ClientOnHold") return;
    this.#set(thread, "WorkerLoop");
    this.lookAgain();
  }

  /** The job of this thread has ended. */
  finished(thread: number, outcome: Outcome): void {
    this.#threads[thread] = { state: "SendOutcome" };
    this.#results.push({ outcome, late: !this.#up });
    this.#goOn();
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
    if (at >= 0) this.#results.splice(at, 1);
    this.#goOn();
    if (this.#results.length === 0) this.#wake(({ untilDelivered }) => untilDelivered === true);
  }

  /** A thread that has waited for room among the results goes on. */
  #goOn(): void {
    if (this.#results.length > this.#threads.length) return;
    const at = this.#threads.findIndex(({ state }) => state === "SendOutcome");
    if (at >= 0) this.#set(at, "WorkerLoop");
    this.#startAhead();
  }

  /** No thread asks any more; what runs may end. */
  stop(): void {
    this.#stopped = true;
    this.returnAhead();
    this.lookAgain();
  }

  /** Begins what may be said next, if anything. */
  lookAgain(): void {
    if (this.#stopped) this.#endIdle();
    if (!this.#up || this.#exchange !== undefined || this.#left) return;
    for (const name of this.#returning.splice(0)) this.#ports.giveBack(name);
    const [waiting] = this.#results;
    if (waiting?.late !== true && this.#ask()) return;
    if (waiting !== undefined) {
      this.#exchange = { is: "result", waiting };
      this.#ports.deliver(waiting.outcome);
      return;
    }
    if (this.#askAhead()) return;
    if (this.#threads.every(({ state }) => state === "WaitClose")) {
      this.#left = true;
      this.#ports.leave();
    }
  }

  /** False where no thread would, or may. */
  #ask(): boolean {
    const thread = this.#asker();
    if (thread === undefined || !this.#ports.mayAsk()) return false;
    this.#set(thread, "RunJob");
    this.#exchange = { is: "question", thread };
    this.#ports.ask();
    return true;
  }

  #askAhead(): boolean {
    if (this.#stopped || this.#ahead !== undefined || this.#noneAhead) return false;
    if (this.#threads.some(({ job }) => job === undefined) || !this.#ports.mayAskAhead()) return false;
    this.#exchange = { is: "question ahead" };
    this.#ports.ask();
    return true;
  }

  #asker(): number | undefined {
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

  /** Who has asked. */
  #answered(): number | "ahead" | undefined {
    const exchange = this.#exchange;
    if (exchange === undefined || exchange.is === "result") return undefined;
    this.#exchange = undefined;
    return exchange.is === "question" ? exchange.thread : "ahead";
  }

  #set(at: number, state: ThreadState): void {
    const thread = this.#threads[at];
    if (thread !== undefined) thread.state = state;
  }
}

const isSame = (a: Job, b: Job): boolean => a.name === b.name && a.kind === b.kind && a.content.equals(b.content);
