/** A job as its submitter sees it: its results, output and state. */
import { checkTimeout } from "../base/clock.js";
import { badInput, LaboroError } from "../base/errors.js";
import type { OperationInput, OperationOutput } from "../broker/operations/index.js";
import type { JobEnd } from "../model/job.js";
import type { EndedTask, OutputStream } from "../model/outcome.js";
import type { Range } from "../model/ranges.js";
import type { OutputPiece } from "../model/store-reads.js";
import {
  asBuffer,
  decodeOutput,
  errorFromValue,
  type TaskDefinition,
  type TaskEnding,
  TaskFailed,
} from "../model/task-definition.js";
import type { CallOptions, Client } from "./client.js";

/** All that the broker says of a job: state, counters, limits, times. */
export type JobInfo = OperationOutput<"job">;
type ListedTask = OperationOutput<"tasks">["tasks"][number];

/**
 * How a task ended. If it succeeded, `value` is what its handler returned, empty for a program. Otherwise `thrown` is
 * what it threw, and `error` one line for people.
 */
export type TaskResult<Output = Buffer> = Omit<ListedTask, "value" | "state"> &
  Pick<EndedTask, "output"> &
  TaskEnding<Output>;

/** One time for all steps of a call. */
function timeLeft({ timeoutMs, signal }: CallOptions): () => CallOptions {
  checkTimeout(timeoutMs);
  if (timeoutMs === undefined) return () => ({ signal });
  const begun = process.hrtime.bigint();
  const passedMs = (): number => Number((process.hrtime.bigint() - begun) / 1_000_000n);
  return () => ({ signal, timeoutMs: Math.max(1, timeoutMs - passedMs()) });
}

/** More tasks than any job has. */
const BEYOND = 2 ** 30;

/** `Output`: the return type of the tasks' handler. Without a definition, its bytes or the standard output. */
export class JobHandle<Output = Buffer> {
  /** Its number, as `laboro status` shows it. */
  readonly id: number;
  /** Whether a submission found an existing job by its key. */
  readonly existed: boolean;
  readonly #client: Client;
  readonly #task: TaskDefinition<unknown, Output, unknown> | undefined;

  constructor(client: Client, id: number, task?: TaskDefinition<unknown, Output, unknown>, existed = false) {
    this.#client = client;
    this.id = id;
    this.existed = existed;
    this.#task = task;
  }

  /** How it ended, once it has. Survives a restart of the broker. */
  async wait(options: CallOptions = {}): Promise<JobEnd> {
    for await (const { ended } of this.#client.follow(this.id, { ...options, tasks: false }))
      if (ended !== undefined) return ended;
    throw new LaboroError("LABORO_INTERNAL", `job ${this.id} was not followed to its end`);
  }

  /**
   * The return value of the job's only task, or of the one at `index`, once it has ended. Rejects with `TaskFailed`,
   * whose cause is what the handler threw, or with LABORO_TASK_CANCELLED.
   */
  async result(options: CallOptions & { readonly index?: number } = {}): Promise<Output> {
    const { index = 0, ...given } = options;
    const left = timeLeft(given);
    const task = await this.#ended(index, left);
    if (task === undefined) throw await this.#noResult(index, left());
    return await this.#outcome(task, left());
  }

  /** The task, once it has ended; undefined if the job has ended without it. */
  async #ended(index: number, left: () => CallOptions): Promise<ListedTask | undefined> {
    const before = index === 0 ? [] : [{ first: 0, last: index - 1 }];
    const has = [...before, { first: index + 1, last: BEYOND }];
    try {
      for await (const { tasks, ended } of this.#client.follow(this.id, { ...left(), has })) {
        const found = tasks.find((task) => task.index === index);
        if (found !== undefined || ended !== undefined) return found;
      }
    } catch (cause) {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_QUEUE_FULL") throw cause;
      // A connection may follow the tasks of a few hundred jobs, and wait for the end of many more.
      if ((await this.info(left())).count > 1) throw cause;
      await this.wait(left());
    }
    const input = { job: this.id, from: index, limit: 1, values: true };
    return (await this.#read("tasks", input, left())).tasks.find((task) => task.index === index);
  }

  /**
   * In order of index, fetched page by page. With `follow`, as tasks end, until the job has ended, each with its output
   * if that is small. Cancelled tasks that never ran have no result.
   */
  async *results(options: CallOptions & { readonly follow?: boolean } = {}): AsyncGenerator<TaskResult<Output>> {
    const { follow = false, ...more } = options;
    if (follow) {
      for await (const { tasks } of this.#client.follow(this.id, more))
        for (const task of tasks) yield await this.#decoded(task, more);
      return;
    }
    let from: number | undefined = 0;
    while (from !== undefined) {
      const input: OperationInput<"tasks"> = { job: this.id, from, values: true };
      const page: OperationOutput<"tasks"> = await this.#read("tasks", input, more);
      for (const task of page.tasks) yield await this.#decoded(task, more);
      from = page.next;
    }
  }

  async #outcome(task: ListedTask, options: CallOptions): Promise<Output> {
    if (task.state === "succeeded") return this.#decode(await this.#bytes(task, options));
    throw await this.#failure(task, options);
  }

  async #failure(task: ListedTask, options: CallOptions): Promise<LaboroError> {
    const { number, state, error = `task ${number} has failed` } = task;
    const cause = errorFromValue(await this.#value(task, options));
    if (state === "failed") return new TaskFailed(this.id, task, error, cause);
    const { reason } = await this.info(options);
    const text = `task ${number} of job ${this.id} was cancelled${reason === undefined ? "" : `: ${reason}`}`;
    return new LaboroError("LABORO_TASK_CANCELLED", text, { cause });
  }

  async #noResult(index: number, options: CallOptions): Promise<LaboroError> {
    const { count, reason, after } = await this.info(options);
    if (index >= count) return badInput(`index: job ${this.id} has ${count} tasks, the last has index ${count - 1}`);
    const cancelledFor = after.find(({ job, any }) => !any && reason?.match(/\bjob (\d+)/)?.[1] === String(job));
    const cause = cancelledFor && (await this.#failureOf(cancelledFor, index, options));
    const why =
      cause instanceof TaskFailed ? `task ${cause.number} of job ${cause.job} failed: ${cause.message}` : reason;
    const text = `a task of job ${this.id} was cancelled before it ran${why === undefined ? "" : `: ${why}`}`;
    return new LaboroError("LABORO_TASK_CANCELLED", text, cause && { cause });
  }

  /** Why the job that this one depends on did not succeed; with `each` why its task at `index` did not. */
  async #failureOf(
    { job, each }: JobInfo["after"][number],
    index: number,
    options: CallOptions,
  ): Promise<Error | undefined> {
    const from = each === true ? index : 0;
    const other = new JobHandle(this.#client, job);
    try {
      const input = { job, from, limit: 1, values: true, state: ["failed" as const] };
      const [task] = (await this.#read("tasks", input, options)).tasks;
      if (task !== undefined && (each !== true || task.index === index)) return await other.#failure(task, options);
      return await other.#noResult(from, options);
    } catch (cause) {
      // It may have been removed.
      if (cause instanceof LaboroError && cause.code === "LABORO_NO_SUCH_JOB") return undefined;
      throw cause;
    }
  }

  async #decoded(
    { value: _, ...task }: ListedTask & Partial<EndedTask>,
    options: CallOptions,
  ): Promise<TaskResult<Output>> {
    const { state, ...rest } = task;
    const value = await this.#value({ ...task, ...(_ && { value: _ }) }, options);
    if (state === "succeeded") return { ...rest, state, value: this.#decode(value) };
    return { ...rest, state, thrown: errorFromValue(value) ?? new Error(task.error ?? state) };
  }

  /** Reads are repeated after a lost connection. */
  async #read<Name extends "job" | "tasks" | "output">(
    operation: Name,
    input: OperationInput<Name>,
    options?: CallOptions,
  ): Promise<OperationOutput<Name>> {
    for (;;) {
      try {
        return await this.#client.ask(operation, input, options);
      } catch (cause) {
        const isGone = cause instanceof LaboroError && cause.code === "LABORO_BROKER_GONE";
        if (!isGone || this.#client.closed) throw cause;
      }
    }
  }

  #decode(bytes: Uint8Array | undefined): Output {
    if (this.#task === undefined) return asBuffer(bytes ?? new Uint8Array(0)) as Output;
    return decodeOutput(this.#task, bytes) as Output;
  }

  /** A program has no value to return: it writes its result. */
  async #bytes(task: ListedTask, options: CallOptions): Promise<Uint8Array | undefined> {
    if (task.value !== undefined || task.valueBytes !== undefined) return this.#value(task, options);
    return task.outputBytes === 0 ? undefined : this.#stdout(task.index, options);
  }

  async #value({ index, value, valueBytes }: ListedTask, options: CallOptions): Promise<Uint8Array | undefined> {
    if (value !== undefined || valueBytes === undefined) return value;
    const input = { job: this.id, from: index, limit: 1, values: true };
    return (await this.#read("tasks", input, options)).tasks[0]?.value;
  }

  /** Its state, counters, limits and times. */
  info(options?: CallOptions): Promise<JobInfo> {
    return this.#read("job", { job: this.id }, options);
  }

  /** The pieces of a task's output in order. A jump in the offsets is output beyond the cap. */
  async *output(
    index: number,
    options: CallOptions & { attempt?: number; stream?: OutputStream } = {},
  ): AsyncGenerator<OutputPiece> {
    const { attempt, stream, ...more } = options;
    let from: number | undefined = 0;
    while (from !== undefined) {
      const input: OperationInput<"output"> = {
        job: this.id,
        index,
        from,
        ...(attempt && { attempt }),
        ...(stream && { stream }),
      };
      const page: OperationOutput<"output"> = await this.#read("output", input, more);
      yield* page.pieces;
      from = page.next;
    }
  }

  /** All of one stream of a task as text. */
  async text(index: number, stream: OutputStream = "stdout", options: CallOptions = {}): Promise<string> {
    return (await this.#stdout(index, options, stream)).toString();
  }

  async #stdout(index: number, options: CallOptions, stream: OutputStream = "stdout"): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for await (const piece of this.output(index, { ...options, stream })) parts.push(piece.bytes);
    return Buffer.concat(parts);
  }

  /** Why a task is not running, in words. */
  async explain(index: number, options?: CallOptions): Promise<string> {
    return (await this.#client.ask("explain", { job: this.id, index }, options)).reason;
  }

  /** Changes its name, priority or limits. Tasks that run keep their time limit. */
  async edit(changes: Omit<OperationInput<"edit">, "job">, options?: CallOptions): Promise<void> {
    await this.#client.ask("edit", { job: this.id, ...changes }, options);
  }

  /**
   * Adds tasks to a job that was submitted with `open`: `{ entries }`, or `array` or `count` if the job has these.
   * Durable when it resolves, and done once, even if the connection is lost meanwhile.
   */
  append(tasks: Omit<OperationInput<"append">, "job">, options?: CallOptions): Promise<OperationOutput<"append">> {
    return this.#client.append({ job: this.id, ...tasks }, options);
  }

  /** An open job takes no more tasks, and ends with its last one. */
  async close(options?: CallOptions): Promise<void> {
    await this.#client.ask("close", { job: this.id }, options);
  }

  /** Starts no more of its tasks, until `release`. */
  async hold(options?: CallOptions): Promise<void> {
    await this.#client.ask("hold", { job: this.id }, options);
  }

  /** Lets the tasks of a held job start. */
  async release(options?: CallOptions): Promise<void> {
    await this.#client.ask("release", { job: this.id }, options);
  }

  /** Durable when it resolves: these tasks, or all, end as cancelled, even if a result arrives later. */
  async cancel(tasks?: readonly Range[], reason?: string, options?: CallOptions): Promise<void> {
    await this.#client.ask("cancel", { job: this.id, ...(tasks && { tasks }), ...(reason && { reason }) }, options);
  }

  /**
   * Runs ended tasks again: those that failed or were cancelled, unless other states are given. Returns how many of
   * this job. With `withDependents` also those of the jobs that depend on it.
   */
  async rerun(
    which: { states?: readonly JobEnd[]; tasks?: readonly Range[]; withDependents?: boolean } = {},
    options?: CallOptions,
  ): Promise<number> {
    return (await this.#client.ask("rerun", { job: this.id, ...which }, options)).count;
  }

  /** Removes the job with its results and output. It must have ended. */
  async remove(options?: CallOptions): Promise<void> {
    await this.#client.ask("remove", { job: this.id }, options);
  }
}
