/**
 * What this broker has done since it was started, in numbers that only rise: for charts and for /metrics. Also how long what waits has
 * been waiting, for which it remembers since when a job could have been handed out where that is not since its submission.
 */
import type { JobId, WorkerId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import type { TaskEnd } from "../../model/outcome.js";
import type { Answer, Write } from "../../model/store.js";
import type { BrokerEvent } from "../events.js";
import { Spread } from "./spread.js";

/** Workers remembered that went without a word; the one that went longest ago goes first. */
const LOST_KEPT = 200;

/** Events remembered that are worth telling. */
export const LATELY_KEPT = 15;

export interface LostWorker {
  readonly name: string;
  readonly at: number;
}

export class Tally {
  /** Tasks, by their last result. One that was cancelled before it was handed out has none. */
  readonly ended: Record<TaskEnd, number> = { succeeded: 0, failed: 0, cancelled: 0 };
  handedOut = 0;
  /** Attempts that were not their task's last. */
  retried = 0;
  outputBytes = 0;
  commits = 0;
  workersLost = 0;
  answered = 0;
  /** Of `answered`, those that were no answer of the service. */
  refused = 0;
  /** From when a task could have been handed out until it was. */
  readonly waits = new Spread();
  readonly lengths = new Spread();
  /** From a request to its answer. */
  readonly answers = new Spread();
  /** Those that went without a word and have not come back. */
  readonly lost = new Map<WorkerId, LostWorker>();
  /** The latest events, the newest first, without the ends of tasks: there may be thousands of these. */
  readonly lately: BrokerEvent[] = [];
  readonly #since = new Map<JobId, number>();

  committed(writes: readonly Write[], answers: readonly Answer[]): void {
    this.commits++;
    for (const [at, write] of writes.entries()) {
      if (write.op === "settle") {
        const answer = answers[at];
        if (answer?.op !== "settle" || answer.lost) continue;
        for (const { state, started, ended } of write.results) {
          this.ended[state]++;
          this.lengths.add(ended - started);
        }
      } else if (write.op === "replace") {
        this.retried += write.earlier.length;
      } else if (write.op === "output") {
        for (const { bytes } of write.chunks) this.outputBytes += bytes.length;
      }
    }
  }

  tasksLeft(job: Job, count: number, now: number): void {
    this.handedOut += count;
    this.waits.add(now - this.readySince(job), count);
  }

  requestAnswered(tookMs: number, refused: boolean): void {
    this.answered++;
    if (refused) this.refused++;
    this.answers.add(tookMs);
  }

  heard(event: BrokerEvent): void {
    const { at: now } = event;
    if (event.kind === "tasks-ended") return;
    this.lately.unshift(event);
    if (this.lately.length > LATELY_KEPT) this.lately.pop();
    if (event.kind === "job-released" || event.kind === "job-rerun") this.notBefore(event.job, now);
    else if (event.kind === "job-ended" || event.kind === "job-removed") this.#since.delete(event.job);
    else if (event.kind === "worker-joined") this.lost.delete(event.worker);
  }

  workerLost(worker: WorkerId, name: string, now: number): void {
    this.workersLost++;
    this.lost.delete(worker);
    this.lost.set(worker, { name, at: now });
    const [oldest] = this.lost.keys();
    if (this.lost.size > LOST_KEPT && oldest !== undefined) this.lost.delete(oldest);
  }

  /** Until now it could not have been handed out: it was held, or waited for another job. */
  notBefore(job: JobId, now: number): void {
    this.#since.set(job, now);
  }

  readySince(job: Job): number {
    return this.#since.get(job.id) ?? job.created;
  }
}
