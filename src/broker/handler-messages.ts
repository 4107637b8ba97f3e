/** What handlers send while they run: how far they are, and what they want to know of the jobs that theirs came after. */
import { badInput } from "../base/errors.js";
import { type Claim, claimOf, claimsOf } from "../dispatch/state.js";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import type { EndedTask } from "../model/outcome.js";
import { LISTED_VALUE, MAX_VALUE } from "../model/outcome.js";
import { taskNumber } from "../model/task-numbers.js";
import type { Core } from "./core.js";

const PAGE = 250;

interface ReportedProgress {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  /** JSON. */
  readonly value: string;
}

/** Of a task of `job`: results of the job `of`. With `limit` 1 there is a value of any size. */
interface ResultsQuery {
  readonly job: JobId;
  readonly of: JobId;
  readonly from: TaskIndex;
  readonly limit?: 1 | undefined;
}

interface EndedPage {
  readonly tasks: readonly EndedTask[];
  readonly next?: TaskIndex;
}

export class HandlerMessages {
  readonly #core: Core;
  /** The last value of each task that runs. */
  readonly #progress = new WeakMap<Claim, Map<TaskIndex, string>>();

  constructor(core: Core) {
    this.#core = core;
  }

  progressed(id: WorkerId, tasks: readonly ReportedProgress[]): void {
    const worker = this.#core.state.workers.get(id);
    for (const { job, index, attempt, value } of tasks) {
      const claim = worker && claimOf(worker, job, index);
      if (claim?.attempt !== attempt) continue;
      const values = this.#progress.get(claim) ?? new Map();
      this.#progress.set(claim, values.set(index, value));
      const number = taskNumber(claim.job.job, index);
      this.#core.events.add({ kind: "task-progress", job, index, number, attempt, progress: value });
    }
  }

  progressOf(claim: Claim, index: TaskIndex): string | undefined {
    return this.#progress.get(claim)?.get(index);
  }

  /** Rejects with LABORO_BAD_INPUT where the worker has no task of the job, or the job did not come after the other one. */
  async results(id: WorkerId, { job, of, from, limit }: ResultsQuery): Promise<EndedPage> {
    const worker = this.#core.state.workers.get(id);
    const claim = worker && [...claimsOf(worker)].find((one) => one.job.id === job);
    if (claim?.job.job.after.some((dependency) => dependency.job === of) !== true)
      throw badInput(`job ${job} did not come after job ${of}, or has no task here`);
    const { store } = this.#core;
    const spec = await store.job(of);
    const maxValue = limit === 1 ? MAX_VALUE : LISTED_VALUE;
    const { results, next } = await store.results(of, { from, limit: limit ?? PAGE, maxValue });
    const tasks = results.map((result) => ({ ...result, number: spec ? taskNumber(spec, result.index) : 0 }));
    return next === undefined ? { tasks } : { tasks, next };
  }
}
