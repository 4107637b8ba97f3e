/** Tells dispatch which tasks of jobs have ended that tasks of other jobs wait for one by one (dispatch/each.ts). */
import { now } from "../base/clock.js";
import type { Log } from "../base/log.js";
import { onEachEnded } from "../dispatch/index.js";
import type { JobId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import type { TaskEnd } from "../model/outcome.js";
import { ALL_TASKS, normalize, type Ranges, rangesOf } from "../model/ranges.js";
import type { Core } from "./core.js";
import type { EventBody } from "./events.js";

const PAGE = 10_000;
const RETRY_MS = 1_000;

export class EachDependencies {
  readonly #core: Core;
  readonly #log: Log;
  /** Jobs whose results are being read; true where they are to be read once more. */
  readonly #reading = new Map<JobId, boolean>();

  constructor(core: Core, log: Log) {
    this.#core = core;
    this.#log = log;
  }

  /** The job is in dispatch, or will be in a moment. */
  added({ after }: Job): void {
    for (const { job, each } of after) if (each === true) this.#read(job);
  }

  onEvent(event: EventBody): void {
    const { state } = this.#core;
    if (!("job" in event) || event.job === undefined || !state.eachWaiting.has(event.job)) return;
    const { job } = event;
    if (event.kind === "tasks-ended" && !event.truncated)
      this.#tell(job, event.succeeded, normalize([...event.failed, ...event.cancelled]), false);
    else if (event.kind === "job-ended" && event.state === "succeeded") this.#tell(job, [ALL_TASKS], [], true);
    else if (event.kind === "tasks-ended" || event.kind === "job-ended" || event.kind === "job-removed")
      this.#read(job);
  }

  #tell(job: JobId, succeeded: Ranges, failed: Ranges, final: boolean): void {
    this.#core.decide((out) => onEachEnded(this.#core.state, out, job, { succeeded, failed, final }, now()));
  }

  #read(job: JobId): void {
    if (this.#reading.has(job)) {
      this.#reading.set(job, true);
      return;
    }
    this.#reading.set(job, false);
    void this.#readResults(job)
      .catch((cause: unknown) => {
        this.#log.info({ job, error: String(cause) }, "cannot read the results that tasks wait for; trying again");
        this.#reading.set(job, true);
        return new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref());
      })
      .then(() => {
        const again = this.#reading.get(job) === true;
        this.#reading.delete(job);
        if (again && !this.#core.stopping) this.#read(job);
      });
  }

  async #readResults(id: JobId): Promise<void> {
    const { store, state } = this.#core;
    // The job first: where it has ended, all of its results are read after its end.
    const job = await store.job(id);
    // A job that was removed has succeeded: the end of any other has been told before.
    if (job === undefined) return this.#tell(id, [ALL_TASKS], [], true);
    const succeeded = await this.#indices(id, ["succeeded"]);
    const failed = await this.#indices(id, ["failed", "cancelled"]);
    // It may have been rerun meanwhile.
    this.#tell(id, succeeded, failed, job.ended !== undefined && !state.jobs.has(id));
  }

  async #indices(job: JobId, states: readonly TaskEnd[]): Promise<Ranges> {
    const found: number[] = [];
    for (let from: number | undefined = 0; from !== undefined; ) {
      const page = await this.#core.store.results(job, { from, limit: PAGE, filter: { states } });
      for (const { index } of page.results) found.push(index);
      from = page.next;
    }
    return rangesOf(found);
  }
}
