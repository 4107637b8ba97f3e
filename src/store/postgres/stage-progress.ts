/**
 * The progress of a job after each write of a stage. The database gives a job's counters after the whole stage; what later writes of
 * the stage added is subtracted for the earlier ones.
 */
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, jobEnd } from "../../model/job.js";
import type { Progress } from "../../model/store.js";

export interface Totals extends Counters {
  readonly job: JobId;
  readonly count: number;
  readonly ended: boolean;
}

interface WriteCounts {
  readonly at: number;
  readonly job: JobId;
  readonly more: Counters;
}

export class StageProgress {
  readonly #writes: WriteCounts[] = [];

  /** The write at this place of the batch has added so much. */
  add(at: number, job: JobId, more: Partial<Counters>): void {
    this.#writes.push({ at, job, more: { succeeded: 0, failed: 0, cancelled: 0, ...more } });
  }

  /** Of which something was added. */
  get jobs(): ReadonlySet<JobId> {
    return new Set(this.#writes.map(({ job }) => job));
  }

  /** By the place of the write; none where its job is not there. */
  progress(totals: readonly Totals[]): Map<number, Progress> {
    const known = new Map(totals.map((one) => [one.job, one]));
    const counters = new Map<JobId, Counters>(known);
    const found = new Map<number, Progress>();
    for (const { at, job, more } of this.#writes.toSorted((a, b) => b.at - a.at)) {
      const total = known.get(job);
      const now = counters.get(job);
      if (total === undefined || now === undefined) continue;
      const { succeeded, failed, cancelled } = now;
      const there = { succeeded, failed, cancelled };
      const over = total.ended && finishedCount(there) >= total.count;
      found.set(at, over ? { counters: there, ended: jobEnd(there) } : { counters: there });
      counters.set(job, {
        succeeded: succeeded - more.succeeded,
        failed: failed - more.failed,
        cancelled: cancelled - more.cancelled,
      });
    }
    return found;
  }
}
