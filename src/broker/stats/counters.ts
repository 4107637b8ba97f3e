/**
 * The counters of charts and /metrics: totals since the start of this broker, open work, and requests of each service.
 * Also since when the tasks of a job can be assigned, if that is later than the submission, to measure how long they
 * wait.
 */
import type { JobState } from "../../dispatch/state.js";
import type { JobId, WorkerId } from "../../model/ids.js";
import { finishedCount, type Job } from "../../model/job.js";
import type { TaskEnd } from "../../model/outcome.js";
import type { Write, WriteResult } from "../../model/store.js";
import type { Core } from "../core.js";
import type { BrokerEvent } from "../events.js";
import type { OPEN_STATES } from "../operations/job-view.js";

/** Lost workers that are remembered. The oldest is dropped first. */
const LOST_KEPT = 200;

/** After these events, tasks of the job can be assigned. */
const READY: ReadonlySet<string> = new Set(["job-edited", "job-released", "job-due", "job-rerun"]);

/** Recent events that are remembered. */
export const MAX_RECENT_EVENTS = 15;

interface LostWorker {
  readonly name: string;
  readonly at: number;
}

export class BrokerCounters {
  /** Tasks by their last result. A task that was cancelled before it was assigned has none. */
  readonly ended: Record<TaskEnd, number> = { succeeded: 0, failed: 0, cancelled: 0 };
  assigned = 0;
  /** Attempts that were not their task's last. */
  retried = 0;
  outputBytes = 0;
  commits = 0;
  workersLost = 0;
  requestsCompleted = 0;
  /** Requests that ended with an error, a part of `requestsCompleted`. */
  requestsFailed = 0;
  /** From the time a task could be assigned to its assignment. */
  readonly taskWaits = new Histogram();
  readonly taskDurations = new Histogram();
  /** From a request to its answer. */
  readonly requestDurations = new Histogram();
  /** Workers that disconnected without notice and have not come back. */
  readonly lostWorkers = new Map<WorkerId, LostWorker>();
  /** The latest events, newest first. Without `tasks-ended`, which may be thousands. */
  readonly recentEvents: BrokerEvent[] = [];
  readonly #readySince = new Map<JobId, number>();

  committed(writes: readonly Write[], results: readonly WriteResult[]): void {
    this.commits++;
    for (const [at, write] of writes.entries()) {
      if (write.op === "settle") {
        const result = results[at];
        if (result?.op !== "settle" || result.lost) continue;
        for (const { state, started, ended } of write.results) {
          this.ended[state]++;
          this.taskDurations.add(ended - started);
        }
      } else if (write.op === "replace") {
        this.retried += write.earlierAttempts.length;
      } else if (write.op === "output") {
        for (const { bytes } of write.chunks) this.outputBytes += bytes.length;
      }
    }
  }

  tasksAssigned(job: Job, count: number, now: number): void {
    this.assigned += count;
    this.taskWaits.add(now - this.readySince(job), count);
  }

  requestCompleted(tookMs: number, failed: boolean): void {
    this.requestsCompleted++;
    if (failed) this.requestsFailed++;
    this.requestDurations.add(tookMs);
  }

  onEvent(event: BrokerEvent): void {
    const { at: now } = event;
    if (event.kind === "tasks-ended" || event.kind === "task-progress") return;
    this.recentEvents.unshift(event);
    if (this.recentEvents.length > MAX_RECENT_EVENTS) this.recentEvents.pop();
    if (READY.has(event.kind) && "job" in event) this.setReadySince(event.job, now);
    else if (event.kind === "job-ended" || event.kind === "job-removed") this.#readySince.delete(event.job);
    else if (event.kind === "worker-joined") this.lostWorkers.delete(event.worker);
  }

  workerLost(worker: WorkerId, name: string, now: number): void {
    this.workersLost++;
    this.lostWorkers.delete(worker);
    this.lostWorkers.set(worker, { name, at: now });
    const [oldest] = this.lostWorkers.keys();
    if (this.lostWorkers.size > LOST_KEPT && oldest !== undefined) this.lostWorkers.delete(oldest);
  }

  /** Until now the tasks could not be assigned: the job was held, or waited for another job. */
  setReadySince(job: JobId, now: number): void {
    this.#readySince.set(job, now);
  }

  readySince(job: Job): number {
    return this.#readySince.get(job.id) ?? job.created;
  }
}

/**
 * A histogram of durations in buckets that double: up to 1 ms, 2, 4, 8 …, and a last one without a bound. Adding takes
 * a few machine instructions, so every task is counted.
 */
export const BUCKETS = 28;

/** The longest time in this bucket, in milliseconds. */
export const boundOf = (bucket: number): number => 2 ** bucket;

export class Histogram {
  /** One more than there are bounds: the last bucket has none. */
  readonly counts = new Float64Array(BUCKETS + 1);
  count = 0;
  sum = 0;

  add(ms: number, times = 1): void {
    const whole = Math.ceil(ms);
    const bucket = whole <= 1 ? 0 : whole > boundOf(BUCKETS - 1) ? BUCKETS : 32 - Math.clz32(whole - 1);
    this.counts[bucket] = (this.counts[bucket] ?? 0) + times;
    this.count += times;
    this.sum += Math.max(0, ms) * times;
  }

  /** What was added since `before` was copied. */
  since(before: Histogram): Histogram {
    const delta = new Histogram();
    this.counts.forEach((count, at) => {
      delta.counts[at] = count - (before.counts[at] ?? 0);
    });
    delta.count = this.count - before.count;
    delta.sum = this.sum - before.sum;
    return delta;
  }

  copy(): Histogram {
    return this.since(new Histogram());
  }

  /** The quantile in milliseconds, interpolated within a bucket; 0 if the histogram is empty. */
  quantile(part: number): number {
    let left = this.count * part;
    if (this.count === 0) return 0;
    for (const [at, count] of this.counts.entries()) {
      if (count > 0 && left <= count) {
        const from = at === 0 ? 0 : boundOf(at - 1);
        const to = at >= BUCKETS ? 2 * boundOf(BUCKETS - 1) : boundOf(at);
        return from + (to - from) * (left / count);
      }
      left -= count;
    }
    return boundOf(BUCKETS);
  }
}

// Counts of open work and workers. Each call visits all open jobs or workers, so it is for occasional use.

/** `atPeers`: running tasks of jobs at other brokers. `delayed`: jobs in the store only, or also in dispatch. */
export function countWork(core: Core, atPeers: ReadonlyMap<number, number> = new Map(), delayed = 0) {
  const jobs = { held: 0, blocked: 0, delayed, waiting: 0, running: 0 };
  const tasks = { waiting: 0, running: 0 };
  for (const open of core.state.jobs.values()) {
    const { id, job } = open;
    const started = open.started + (atPeers.get(id) ?? 0);
    if (job.delayed !== true || !open.delayed)
      jobs[openJobState({ held: open.held, delayed: open.delayed, blockedBy: open.blockedBy, started })]++;
    const left = job.count - finishedCount(core.jobs.countersOf(id) ?? job.counters);
    tasks.running += Math.min(started, left);
    tasks.waiting += Math.max(0, left - started);
  }
  return { jobs, tasks };
}

export const openJobState = ({
  held,
  delayed,
  blockedBy,
  started,
}: Pick<JobState, "held" | "delayed" | "blockedBy" | "started">): (typeof OPEN_STATES)[number] => {
  if (held) return "held";
  if (blockedBy.size > 0) return "blocked";
  return delayed ? "delayed" : started > 0 ? "running" : "waiting";
};

export function countWorkers(core: Core) {
  const workers = { connected: 0, disconnected: 0, draining: 0 };
  const slots = { total: 0, free: 0 };
  for (const { connected, draining, profile, free } of core.state.workers.values()) {
    workers[connected ? "connected" : "disconnected"]++;
    if (draining) workers.draining++;
    if (!connected) continue;
    slots.total += profile.total.slots;
    if (profile.paused === undefined) slots.free += Math.max(0, free.slots ?? 0);
  }
  return { workers, slots };
}

export function countRequests(core: Core): { waiting: number; running: number } {
  let waiting = 0;
  for (const { forRequests, requests } of core.state.signatures.values()) if (forRequests) waiting += requests.size;
  return { waiting, running: core.state.requests.size - waiting };
}

/**
 * How long the oldest assignable task has waited; 0 if none waits. The wait of a job that is held or blocked starts
 * when that ends. Each call records this for open jobs, so it must be called often enough.
 */
export function oldestWait(core: Core, now: number): number {
  let oldest = now;
  for (const open of core.state.jobs.values()) {
    const stage = openJobState(open);
    if (stage === "held" || stage === "blocked" || stage === "delayed") core.counters.setReadySince(open.id, now);
    else if (open.ready > 0 || open.mayLease) oldest = Math.min(oldest, core.counters.readySince(open.job));
  }
  return Math.max(0, now - oldest);
}

// Statistics of services: how many requests were completed, how fast, at what rate. Bounded in size.

/** Latencies that are kept for each service. */
const WINDOW = 1024;
const SECONDS = 60;
/** Services that are remembered. The one used longest ago is dropped first. */
const SERVICES = 1_000;

interface ServiceStatsView {
  readonly completed: number;
  readonly failed: number;
  /** Requests completed per second, over the last minute. */
  readonly rate: number;
  readonly latencyMs?: { readonly mean: number; readonly p50: number; readonly p99: number };
}

class ServiceCounters {
  completed = 0;
  failed = 0;
  readonly times = new Float64Array(WINDOW);
  readonly perSecond = new Uint32Array(SECONDS);
  second = 0;

  add(now: number, tookMs: number, failed: boolean): void {
    this.advance(now);
    if (failed) this.failed++;
    this.times[this.completed++ % WINDOW] = tookMs;
    const slot = this.second % SECONDS;
    this.perSecond[slot] = (this.perSecond[slot] ?? 0) + 1;
  }

  /** Clears the seconds that are older than a minute. */
  advance(now: number): void {
    const second = Math.floor(now / 1000);
    if (second - this.second >= SECONDS) this.perSecond.fill(0);
    else for (let one = this.second + 1; one <= second; one++) this.perSecond[one % SECONDS] = 0;
    this.second = Math.max(this.second, second);
  }
}

export class ServiceStats {
  /** In order of last use. */
  readonly #services = new Map<string, ServiceCounters>();
  #last: { readonly service: string; readonly pool: string; readonly counters: ServiceCounters } | undefined;

  add(service: string, pool: string, now: number, tookMs: number, failed: boolean): void {
    // Most requests are for the same service as the one before.
    const last = this.#last;
    const same = last !== undefined && last.service === service && last.pool === pool;
    (same ? last.counters : this.#moveToEnd(service, pool)).add(now, tookMs, failed);
  }

  #moveToEnd(service: string, pool: string): ServiceCounters {
    const key = keyOf(service, pool);
    const counters = this.#services.get(key) ?? new ServiceCounters();
    this.#services.delete(key);
    this.#services.set(key, counters);
    this.#last = { service, pool, counters };
    const [oldest] = this.#services.keys();
    if (this.#services.size > SERVICES && oldest !== undefined) this.#services.delete(oldest);
    return counters;
  }

  /** Services that had requests, with their pool. */
  names(): { service: string; pool: string }[] {
    return [...this.#services.keys()].map((key) => {
      const [pool = "", service = ""] = key.split("\0");
      return { service, pool };
    });
  }

  of(service: string, pool: string, now: number): ServiceStatsView {
    const counters = this.#services.get(keyOf(service, pool));
    if (counters === undefined) return { completed: 0, failed: 0, rate: 0 };
    counters.advance(now);
    const { completed, failed } = counters;
    const rate = counters.perSecond.reduce((sum, count) => sum + count, 0) / SECONDS;
    const times = counters.times.slice(0, Math.min(completed, WINDOW)).sort();
    const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
    const at = (part: number): number => times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0;
    return { completed, failed, rate, latencyMs: { mean, p50: at(0.5), p99: at(0.99) } };
  }
}

const keyOf = (service: string, pool: string): string => `${pool}\0${service}`;
