/**
 * What a client can ask of the broker itself, by name. One table for every door: the link carries them as ASK, and whatever else
 * learns to ask will use the same.
 */
import { explain, newParcelId, onCancel, onHold } from "../dispatch/index.js";
import { LaboroError } from "../model/errors.js";
import { JobId, WorkerId } from "../model/ids.js";
import { type Fields, fields, integer, list, optional, text } from "../model/input.js";
import type { Job, JobEnd } from "../model/job.js";
import { readSubmission } from "../model/job-input.js";
import type { OutputStream } from "../model/outcome.js";
import { normalize, type Range } from "../model/ranges.js";
import { now } from "./clock.js";
import type { Core } from "./core.js";

const PAGE = 1_000;
const OUTPUT_PAGE = 1024 * 1024;

type Operation = (input: Fields, gone: AbortSignal) => Promise<unknown>;

export class Operations {
  readonly #core: Core;
  readonly #table: ReadonlyMap<string, Operation>;

  constructor(core: Core) {
    this.#core = core;
    this.#table = new Map<string, Operation>([
      ["submit", (input) => this.#submit(input)],
      ["job", (input) => this.#job(jobIn(input))],
      ["jobs", (input) => this.#jobs(input)],
      ["wait", (input, gone) => this.#wait(jobIn(input), gone)],
      ["results", (input) => this.#results(input)],
      ["output", (input) => this.#output(input)],
      ["explain", (input) => this.#explain(input)],
      ["hold", (input) => this.#hold(jobIn(input), true)],
      ["release", (input) => this.#hold(jobIn(input), false)],
      ["cancel", (input) => this.#cancel(input)],
      ["workers", async () => this.#workers()],
      ["drain", async (input) => this.#drain(input)],
      ["stop", async (input) => this.#stop(input)],
    ]);
  }

  perform(operation: string, input: unknown, gone: AbortSignal): Promise<unknown> {
    const perform = this.#table.get(operation);
    if (perform === undefined) {
      const known = [...this.#table.keys()].join(", ");
      throw new LaboroError("LABORO_BAD_INPUT", `no operation ${operation}; there are ${known}`);
    }
    return perform(fields(input ?? {}, operation), gone);
  }

  async #submit(input: Fields): Promise<{ job: JobId }> {
    const { request, entries } = readSubmission(input);
    const { state } = this.#core;
    const finished = new Set<JobId>();
    for (const { job, any } of request.after) {
      const other = await this.#job(job);
      if (other.ended === undefined) continue;
      if (!any && other.ended.state !== "succeeded") {
        throw new LaboroError("LABORO_JOB_ENDED", `job ${job}, which this one waits for, has ${other.ended.state}`);
      }
      finished.add(job);
    }
    const { leaseBlock } = state.settings;
    const parcel = newParcelId(state);
    const more = entries === undefined ? {} : { entries };
    const answer = await this.#core.ask({ op: "submit", job: request, lease: leaseBlock, parcel, ...more });
    if (answer.op !== "submit") throw new LaboroError("LABORO_INTERNAL", "the store gave another answer");
    for (const { job } of request.after) if (!state.jobs.has(job)) finished.add(job);
    this.#core.jobStored(answer.job, answer.parcel, finished);
    return { job: answer.job.id };
  }

  async #job(id: JobId): Promise<Job> {
    const job = await this.#core.store.job(id);
    if (job === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${id}`);
    return job;
  }

  #jobs(input: Fields): Promise<unknown> {
    const before = optional(input.before, "before", (value, what) => integer(value, what, 1, Number.MAX_SAFE_INTEGER));
    return this.#core.store.jobs({
      limit: limitIn(input, PAGE),
      ...(before === undefined ? {} : { before: JobId(before) }),
    });
  }

  async #wait(id: JobId, gone: AbortSignal): Promise<{ state: JobEnd }> {
    // Watch first, then look: an end in between is seen by one of the two.
    let forget = (): void => {};
    const watched = new Promise<JobEnd>((resolve) => {
      forget = this.#core.whenEnded(id, resolve);
    });
    gone.addEventListener("abort", forget, { once: true });
    try {
      const job = this.#core.state.jobs.has(id) ? undefined : await this.#job(id);
      return { state: job?.ended?.state ?? (await watched) };
    } finally {
      forget();
      gone.removeEventListener("abort", forget);
    }
  }

  #results(input: Fields): Promise<unknown> {
    const from = optional(input.from, "from", (value, what) => integer(value, what, 0, Number.MAX_SAFE_INTEGER)) ?? 0;
    return this.#core.store.results(jobIn(input), { from, limit: limitIn(input, PAGE) });
  }

  #output(input: Fields): Promise<unknown> {
    const index = integer(input.index, "index", 0, Number.MAX_SAFE_INTEGER);
    const whole = (value: unknown, what: string): number => integer(value, what, 0, Number.MAX_SAFE_INTEGER);
    const attempt = optional(input.attempt, "attempt", whole);
    const stream = optional(input.stream, "stream", readStream);
    return this.#core.store.output(jobIn(input), index, {
      from: optional(input.from, "from", whole) ?? 0,
      limit: limitIn(input, OUTPUT_PAGE),
      ...(attempt === undefined ? {} : { attempt }),
      ...(stream === undefined ? {} : { stream }),
    });
  }

  async #explain(input: Fields): Promise<{ why: string }> {
    const id = jobIn(input);
    const job = await this.#job(id);
    const index = integer(input.index, "index", 0, Number.MAX_SAFE_INTEGER);
    if (index >= job.count) throw new LaboroError("LABORO_NO_SUCH_TASK", `job ${id} has tasks 0 to ${job.count - 1}`);
    const page = await this.#core.store.results(id, { from: index, limit: 1 });
    const result = page.results.find((one) => one.index === index);
    if (result !== undefined) return { why: `it has ${result.state}` };
    return { why: explain(this.#core.state, id, index, now()) };
  }

  async #hold(id: JobId, held: boolean): Promise<object> {
    await this.#running(id);
    await this.#durably((out) => onHold(this.#core.state, out, id, held, now()));
    return {};
  }

  async #cancel(input: Fields): Promise<object> {
    const id = jobIn(input);
    const job = await this.#running(id);
    const ranges = optional(input.tasks, "tasks", (value, what) => list(value, what, 100_000, readRange));
    const all = [{ first: 0, last: job.count - 1 }];
    for (const { last } of ranges ?? []) {
      if (last >= job.count) throw new LaboroError("LABORO_NO_SUCH_TASK", `job ${id} has tasks 0 to ${job.count - 1}`);
    }
    const reason = optional(input.reason, "reason", text);
    await this.#durably((out) => onCancel(this.#core.state, out, id, normalize(ranges ?? all), reason));
    return {};
  }

  /** A job that can still be changed. */
  async #running(id: JobId): Promise<Job> {
    const job = await this.#job(id);
    if (job.ended !== undefined) throw new LaboroError("LABORO_JOB_ENDED", `job ${id} has ${job.ended.state} already`);
    return job;
  }

  /** Resolves when what was decided is on disk. */
  #durably(step: Parameters<Core["decide"]>[0]): Promise<void> {
    const { refusing } = this.#core;
    if (refusing !== undefined) return Promise.reject(refusing);
    return new Promise((resolve) => void this.#core.decide(step, resolve));
  }

  #workers(): unknown {
    return {
      workers: [...this.#core.state.workers.values()].map((worker) => ({
        id: worker.profile.id,
        name: worker.profile.name,
        protocol: worker.profile.protocol,
        pool: worker.profile.pool,
        tags: worker.profile.tags,
        services: worker.profile.services,
        connected: worker.connected,
        draining: worker.draining,
        standing: worker.standing,
        total: { ...worker.profile.total },
        free: { ...worker.free },
        tasks: worker.out,
        stock: worker.stock,
        requests: worker.requests.size,
      })),
    };
  }

  #drain(input: Fields): object {
    const id = this.#workerIn(input);
    this.#core.workerDrains(id);
    this.#core.portOf(id)?.drain();
    return {};
  }

  #stop(input: Fields): object {
    const id = this.#workerIn(input);
    this.#core.workerDrains(id);
    this.#core.portOf(id)?.stop();
    return {};
  }

  #workerIn(input: Fields): WorkerId {
    const id = WorkerId(text(input.worker, "worker"));
    if (this.#core.state.workers.has(id)) return id;
    throw new LaboroError("LABORO_BAD_INPUT", `no worker ${id} is known here`);
  }
}

const jobIn = (input: Fields): JobId => JobId(integer(input.job, "job", 1, Number.MAX_SAFE_INTEGER));

const limitIn = (input: Fields, most: number): number =>
  optional(input.limit, "limit", (value, what) => integer(value, what, 1, most)) ?? most;

function readRange(value: unknown, what: string): Range {
  const given = fields(value, what);
  const first = integer(given.first, `${what}.first`, 0, Number.MAX_SAFE_INTEGER);
  return { first, last: integer(given.last ?? first, `${what}.last`, first, Number.MAX_SAFE_INTEGER) };
}

function readStream(value: unknown): OutputStream {
  if (value === "stdout" || value === "stderr") return value;
  throw new LaboroError("LABORO_BAD_INPUT", `stream: expected stdout or stderr, got ${String(value)}`);
}
