/**
 * What this broker has done since it was started, in numbers that only rise: for charts and for /metrics. Also how long what waits has
 * been waiting, for which it remembers since when a job could have been handed out where that is not since its submission.
 */
import type { JobId, WorkerId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import type { TaskEnd } from "../../model/outcome.js";
import type { WriteResult, Write } from "../../model/store.js";
import type { BrokerEvent } from "../events.js";
import { Histogram } from "./histogram.js";

/** Workers remembered that went without a word; the one that went longest ago goes first. */
const LOST_KEPT = 200;

/** Events remembered that are worth telling. */
export const MAX_RECENT_EVENTS = 15;

export interface LostWorker {
  readonly name: string;
  readonly at: number;
}

export class BrokerCounters {
  /** Tasks, by their last result. One that was cancelled before it was handed out has none. */
  readonly ended: Record<TaskEnd, number> = { succeeded: 0, failed: 0, cancelled: 0 };
  assigned = 0;
  /** Attempts that were not their task's last. */
  retried = 0;
  outputBytes = 0;
  commits = 0;
  workersLost = 0;
  requestsCompleted = 0;
  /** Of `answered`, those that were no answer of the service. */
  requestsFailed = 0;
  /** From when a task could have been handed out until it was. */
  readonly taskWaits = new Histogram();
  readonly taskDurations = new Histogram();
  /** From a request to its answer. */
  readonly requestDurations = new Histogram();
  /** Those that went without a word and have not come back. */
  readonly lostWorkers = new Map<WorkerId, LostWorker>();
  /** The latest events, the newest first, without the ends of tasks: there may be thousands of these. */
  readonly recentEvents: BrokerEvent[] = [];
  readonly #readySince = new Map<JobId, number>();

  committed(writes: readonly Write[], answers: readonly WriteResult[]): void {
    this.commits++;
    for (const [at, write] of writes.entries()) {
      if (write.op === "settle") {
        const answer = answers[at];
        if (answer?.op !== "settle" || answer.lost) continue;
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

  requestCompleted(tookMs: number, refused: boolean): void {
    this.requestsCompleted++;
    if (refused) this.requestsFailed++;
    this.requestDurations.add(tookMs);
  }

  onEvent(event: BrokerEvent): void {
    const { at: now } = event;
    if (event.kind === "tasks-ended") return;
    this.recentEvents.unshift(event);
    if (this.recentEvents.length > MAX_RECENT_EVENTS) this.recentEvents.pop();
    if (event.kind === "job-released" || event.kind === "job-rerun") this.setReadySince(event.job, now);
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

  /** Until now it could not have been handed out: it was held, or waited for another job. */
  setReadySince(job: JobId, now: number): void {
    this.#readySince.set(job, now);
  }

  readySince(job: Job): number {
    return this.#readySince.get(job.id) ?? job.created;
  }
}
