/**
 * Dispatch alone, in virtual time: its functions get the events that a broker would give them, and the writes are answered by a
 * store that only counts. Workers join, leave and die, tasks end or fail, all drawn from one seed. Nothing waits: the clock
 * moves to the next event.
 */
import {
  createState,
  DEFAULT_SETTINGS,
  Decisions,
  newTaskRangeId,
  onCommitted,
  onDone,
  onJobAdded,
  onTimer,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
} from "../../dist/dispatch/index.js";

const TAGS = 20;
const TAGS_OF_A_WORKER = 5;
const PRIORITIES = 5;
const JOB_TASKS = 5_000;
/** Jobs that are open at one time, two for each signature. */
const OPEN_JOBS_PER_SIGNATURE = 2;
/** The length of a task: 1 to 100 s. So no task is prefetched and each end needs a decision. */
const SHORTEST_MS = 1_000;
const LONGEST_MS = 100_000;
const FAILING = 0.01;
/** How often a worker leaves or dies and another joins: once for so many ends of tasks. */
const TASKS_PER_DEPARTURE = 50;

export class VirtualCluster {
  #now = 1_000;
  #random = seeded(42);
  #state = createState({ ...DEFAULT_SETTINGS, graceMs: 0, closedGraceMs: 0 }, 1, false);
  #jobs = new Map();
  /** What ends at which time: lists by millisecond, used as a ring. */
  #ends = Array.from({ length: LONGEST_MS + 1 }, () => []);
  #workers = [];
  #byId = new Map();
  #nextWorker = 0;
  #signatures;
  #nextJob = 1;
  #sinceDeparture = 0;
  /** Tasks that ended. */
  ended = 0;

  constructor(workers, signatures) {
    this.#signatures = requirements().slice(0, signatures);
    for (let i = 0; i < workers; i++) this.#join();
    for (let i = 0; i < signatures * OPEN_JOBS_PER_SIGNATURE; i++) this.#submit();
  }

  /** Tasks that wait. */
  get waiting() {
    let waiting = 0;
    for (const { ready } of this.#state.jobs.values()) waiting += ready;
    return waiting;
  }

  /** Runs until so many more tasks have ended. */
  run(tasks) {
    const until = this.ended + tasks;
    while (this.ended < until) {
      this.#now++;
      const due = this.#ends[this.#now % this.#ends.length];
      if (due.length === 0) continue;
      this.#ends[this.#now % this.#ends.length] = [];
      for (const task of due) this.#end(task);
      this.#decide((out) => onTimer(this.#state, out, this.#now));
    }
  }

  #end({ worker, job, index, attempt, started }) {
    // The worker left or died with it.
    if (worker.gone) return;
    this.ended++;
    const code = this.#random() < FAILING ? 1 : 0;
    const done = { job, index, attempt, code, started, ended: this.#now, outputBytes: 0 };
    this.#decide((out) => onDone(this.#state, out, worker.id, [done], this.#now));
    if (++this.#sinceDeparture < TASKS_PER_DEPARTURE) return;
    this.#sinceDeparture = 0;
    this.#depart();
    this.#join();
  }

  #join() {
    const number = this.#nextWorker++;
    const worker = { id: `w${number}`, gone: false };
    this.#workers.push(worker);
    this.#byId.set(worker.id, worker);
    const profile = {
      id: worker.id,
      session: "1",
      name: worker.id,
      protocol: "laboro",
      pool: "default",
      tags: Array.from({ length: TAGS_OF_A_WORKER }, (_, i) => `t${(number + i * i) % TAGS}`),
      services: [],
      total: { slots: 1 + (number % 4), memory: 64 },
      reserveRequests: 0,
      resumable: true,
      canPrefetch: true,
    };
    this.#decide((out) => onWorkerJoined(this.#state, out, profile, [], this.#now));
  }

  #depart() {
    const at = Math.floor(this.#random() * this.#workers.length);
    const worker = this.#workers[at];
    this.#workers[at] = this.#workers.at(-1);
    this.#workers.pop();
    worker.gone = true;
    this.#byId.delete(worker.id);
    const orderly = this.#random() < 0.5;
    this.#decide((out) =>
      orderly
        ? onWorkerLeft(this.#state, out, worker.id, this.#now)
        : onWorkerAway(this.#state, out, worker.id, this.#now, true),
    );
  }

  #submit() {
    const id = this.#nextJob++;
    const job = {
      id,
      name: "job",
      recipe: { kind: "command", argv: ["true"] },
      requirement: this.#signatures[id % this.#signatures.length],
      count: JOB_TASKS,
      priority: Math.floor(this.#random() * PRIORITIES),
      limits: { retries: 3, crashLimit: 0, outputCap: 0 },
      after: [],
      held: false,
      created: this.#now,
      hasEntries: false,
      cursor: JOB_TASKS,
      cancels: [],
      counters: { succeeded: 0, failed: 0, cancelled: 0 },
    };
    this.#jobs.set(id, { succeeded: 0, failed: 0, cancelled: 0 });
    const taskRange = { id: newTaskRangeId(this.#state), job: id, first: 0, last: JOB_TASKS - 1 };
    const history = { attempt: 0, failures: 0, crashes: 0, notBefore: 0 };
    this.#decide((out) => onJobAdded(this.#state, out, job, { ...taskRange, ...history }, new Set(), this.#now));
  }

  /** One decision; then the answers of the store, which are decided on again, and the messages. */
  #decide(step) {
    let out = new Decisions();
    step(out);
    while (out.writes.length > 0 || out.sends.length > 0) {
      const { writes, sends } = out;
      const results = writes.map((write) => this.#store(write));
      for (const send of sends) this.#send(send);
      if (writes.length === 0) return;
      out = new Decisions();
      onCommitted(this.#state, out, writes, results, this.#now);
      for (const { progress } of results) if (progress?.ended !== undefined) this.#submit();
    }
  }

  #send(send) {
    if (send.kind !== "tasks") return;
    const worker = this.#byId.get(send.worker);
    for (let index = send.first; index <= send.last; index++) {
      const ms = SHORTEST_MS + Math.floor(this.#random() * (LONGEST_MS - SHORTEST_MS));
      this.#ends[(this.#now + ms) % this.#ends.length].push({
        worker,
        job: send.job,
        index,
        attempt: send.attempt,
        started: this.#now,
      });
    }
  }

  #store(write) {
    const counters = this.#jobs.get(write.job);
    if (write.op === "settle") {
      for (const { state } of write.results) counters[state] += 1;
      return { op: "settle", lost: false, progress: this.#progress(write.job, counters) };
    }
    if (write.op === "replace") {
      counters.cancelled += write.cancelled;
      return { op: "replace", lost: false, progress: this.#progress(write.job, counters) };
    }
    if (write.op === "lease") return { op: "lease", job: write.job, taskRanges: [], mayLease: false };
    if (write.op === "put") return { op: "put", stored: true, version: 1 };
    if (write.op === "claim") return { op: "claim", lost: false };
    throw new Error(`unexpected write ${write.op}`);
  }

  #progress(job, counters) {
    const all = counters.succeeded + counters.failed + counters.cancelled;
    if (all < JOB_TASKS) return { counters };
    this.#jobs.delete(job);
    return { counters, ended: counters.failed > 0 ? "failed" : "succeeded" };
  }
}

/** One tag, or two of them. Every tenth needs two slots, another tenth memory. */
function requirements() {
  const pairs = Array.from({ length: TAGS }, (_, a) => Array.from({ length: TAGS - a }, (_, b) => [a, a + b])).flat();
  return pairs.map(([a, b], i) => ({
    pool: "default",
    tags: [...new Set([`t${a}`, `t${b}`])],
    needs: { slots: i % 10 === 9 ? 2 : 1, ...(i % 10 === 4 ? { memory: 16 } : {}) },
  }));
}

/** Numbers in [0, 1), the same for the same seed (xorshift). */
function seeded(seed) {
  let x = seed;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) / 2 ** 32;
  };
}
