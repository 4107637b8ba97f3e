/**
 * Time limits in percent of the median of a job's tasks that have succeeded here. There is none before three have. A task's limit is that
 * of the median when its time is up, not when it started.
 */
import type { JobId } from "../model/ids.js";

export interface RunningLimit {
  /** `ms`: how long it took, if it succeeded. */
  end(ms: number | undefined): void;
}

interface JobDurations {
  /** Sorted. */
  readonly durations: number[];
  readonly running: Set<() => void>;
}

const MIN_SUCCEEDED = 3;
const MAX_DURATIONS = 1_001;
/** Of jobs without running tasks, the last ones are remembered. */
const MAX_JOBS = 100;
const MAX_TIMER_MS = 2 ** 31 - 1;

export class MedianLimits {
  readonly #jobs = new Map<JobId, JobDurations>();

  /** `stop` is called when the time of the task is up. */
  begin(id: JobId, percent: number, stop: () => void): RunningLimit {
    const job = this.#jobs.get(id) ?? { durations: [], running: new Set() };
    this.#jobs.delete(id);
    this.#jobs.set(id, job);
    this.#forgetOld();
    const { durations, running } = job;
    const started = performance.now();
    let timer: NodeJS.Timeout | undefined;
    const check = (): void => {
      clearTimeout(timer);
      const median = durations[durations.length >> 1];
      if (median === undefined || durations.length < MIN_SUCCEEDED) return;
      const left = started + (median * percent) / 100 - performance.now();
      if (left > 0) timer = setTimeout(check, Math.min(Math.ceil(left), MAX_TIMER_MS));
      else stop();
    };
    running.add(check);
    check();
    return {
      end: (ms) => {
        clearTimeout(timer);
        running.delete(check);
        if (ms === undefined) return;
        insert(durations, ms);
        // Those that began before there was a median.
        if (durations.length === MIN_SUCCEEDED) for (const other of running) other();
      },
    };
  }

  #forgetOld(): void {
    for (const [id, { running }] of this.#jobs) {
      if (this.#jobs.size <= MAX_JOBS) return;
      if (running.size === 0) this.#jobs.delete(id);
    }
  }
}

/** Without the first and the last, the median is the same. */
function insert(sorted: number[], ms: number): void {
  const at = sorted.findIndex((other) => other > ms);
  sorted.splice(at < 0 ? sorted.length : at, 0, ms);
  if (sorted.length <= MAX_DURATIONS) return;
  sorted.shift();
  sorted.pop();
}
