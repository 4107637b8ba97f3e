/** Messages of workers besides output and results: progress, queries for results of earlier jobs, parts of files. */
import { badInput, LaboroError } from "../base/errors.js";
import { type Claim, claimOf, claimsOf } from "../dispatch/state.js";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { type EndedTask, FILE_CHUNK, LISTED_VALUE, MAX_VALUE } from "../model/outcome.js";
import type { OutputPage } from "../model/store-reads.js";
import { MAX_FILES, returnedIndex, sentIndex } from "../model/task-files.js";
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

/** For a task of `job`: results of the job `of`. With `limit` 1 the value may have any size. */
interface ResultsQuery {
  readonly job: JobId;
  readonly of: JobId;
  readonly from: TaskIndex;
  readonly limit?: 1 | undefined;
}

interface EndedPage {
  /** The service that the tasks of that job call. */
  readonly service?: string | undefined;
  readonly tasks: readonly EndedTask[];
  readonly next?: TaskIndex;
}

export class HandlerRequests {
  readonly #core: Core;
  /** The last value of each running task. */
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

  /** Rejects with LABORO_BAD_INPUT if the worker has no task of the job, or the job does not depend on the other. */
  async results(id: WorkerId, { job, of, from, limit }: ResultsQuery): Promise<EndedPage> {
    const worker = this.#core.state.workers.get(id);
    const claim = worker && [...claimsOf(worker)].find((one) => one.job.id === job);
    if (claim?.job.job.after.some((dependency) => dependency.job === of) !== true)
      throw badInput(`job ${job} does not depend on job ${of}, or has no task here`);
    const { store } = this.#core;
    const spec = await store.job(of);
    const maxValue = limit === 1 ? MAX_VALUE : LISTED_VALUE;
    const { results, next } = await store.results(of, { from, limit: limit ?? PAGE, maxValue });
    const tasks = results.map((result) => ({ ...result, number: spec ? taskNumber(spec, result.index) : 0 }));
    return { service: spec?.requirement.service, tasks, ...(next === undefined ? {} : { next }) };
  }
}

// The contents of files: those sent with jobs, and those that tasks return.

/** Files sent with a job have one attempt. */
const SENT: Attempt = 1;

export class TaskFileBytes {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  /** A part of a file that was sent with a job, for a worker that has a task of it. */
  async readSent(worker: WorkerId, job: JobId, file: number, from: number): Promise<Uint8Array> {
    const found = this.#core.state.workers.get(worker);
    if (found === undefined || ![...claimsOf(found)].some((claim) => claim.job.id === job))
      throw badInput(`job ${job} has no task at this worker`);
    if (file >= MAX_FILES) throw badInput(`job ${job} has no file ${file}`);
    return joined(await this.#read(job, sentIndex(file), SENT, from), from);
  }

  /**
   * Stores a part of a file that is sent with a job. A part that is stored already counts once. Returns how much is
   * stored now. If `from` lies beyond that, nothing is changed.
   */
  async writeSent({ id, recipe }: Job, file: number, from: number, bytes: Uint8Array): Promise<number> {
    const given = recipe.kind === "call" ? undefined : recipe.files?.sent?.[file];
    if (given === undefined) throw badInput(`file: job ${id} has no file ${file} to be sent`);
    if (from + bytes.length > given.size)
      throw badInput(`bytes: ${given.path} has ${given.size} bytes, and these end at ${from + bytes.length}`);
    const part = { job: id, index: sentIndex(file), attempt: SENT };
    const [stored = 0] = await this.#core.store.storedOutputBytes([part]);
    if (bytes.length === 0 || from > stored || from + bytes.length <= stored) return stored;
    await this.#core.commit({ op: "output", chunks: [{ ...part, stream: "stdout", offset: from, bytes }] });
    return from + bytes.length;
  }

  /** A part of a file that an attempt has returned, and the offset of the next part if there is more. */
  async readReturned(
    job: JobId,
    index: TaskIndex,
    attempt: Attempt,
    from: number,
  ): Promise<{ bytes: Uint8Array; next?: number }> {
    const page = await this.#read(job, returnedIndex(index), attempt, from);
    const bytes = joined(page, from);
    const end = from + bytes.length;
    const last = page.pieces.at(-1);
    if ((last !== undefined && last.offset + last.bytes.length > end) || (page.next !== undefined && page.next !== end))
      throw new LaboroError(
        "LABORO_DATA_CORRUPT",
        `the files that task ${index} of job ${job} returned are damaged at ${end}`,
      );
    return page.next === undefined ? { bytes } : { bytes, next: page.next };
  }

  #read(job: JobId, index: TaskIndex, attempt: Attempt, from: number): Promise<OutputPage> {
    return this.#core.store.output(job, index, { attempt, from, limit: FILE_CHUNK });
  }
}

/** The bytes from this offset up to the first gap. */
function joined({ pieces }: OutputPage, from: number): Uint8Array {
  const parts: Uint8Array[] = [];
  let at = from;
  for (const { offset, bytes } of pieces) {
    if (offset !== at) break;
    parts.push(bytes);
    at += bytes.length;
  }
  return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
}
