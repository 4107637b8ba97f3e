/**
 * Counters since the start of this broker, for charts and /metrics. It also remembers since when the tasks of a job can be assigned, if
 * that is later than the submission, to measure how long they wait.
 */
import type { JobId, WorkerId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import type { TaskEnd } from "../../model/outcome.js";
import type { Write, WriteResult } from "../../model/store.js";
import type { BrokerEvent } from "../events.js";

/** Lost workers that are remembered; the one lost longest ago is dropped first. */
const LOST_KEPT = 200;

/** Tasks of the job can be assigned from now on. */
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
  /** Those of `requestsCompleted` that ended with an error. */
  requestsFailed = 0;
  /** From when a task could be assigned until it was. */
  readonly taskWaits = new Histogram();
  readonly taskDurations = new Histogram();
  /** From a request to its answer. */
  readonly requestDurations = new Histogram();
  /** Workers that disconnected without notice and have not come back. */
  readonly lostWorkers = new Map<WorkerId, LostWorker>();
  /** The latest events, newest first, without `tasks-ended`, of which there may be thousands. */
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
    if (event.kind === "tasks-ended") return;
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

  /** Until now its tasks could not be assigned: the job was held, or waited for another job. */
  setReadySince(job: JobId, now: number): void {
    this.#readySince.set(job, now);
  }

  readySince(job: Job): number {
    return this.#readySince.get(job.id) ?? job.created;
  }
}

/**
 * A histogram of durations, in buckets that double: up to 1 ms, 2, 4, 8 …, and a last one without a bound. Adding takes a few machine
 * instructions, so it can be done for every task.
 */
export const BUCKETS = 28;

/** The longest time in this bucket, in milliseconds. */
export const boundOf = (bucket: number): number => 2 ** bucket;

export class Histogram {
  /** One more than there are bounds: the last has no bound. */
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
