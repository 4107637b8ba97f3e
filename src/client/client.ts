/** The client API: jobs, their results and output, and services. */

import { LaboroError } from "../base/errors.js";
import type { OperationInput, OperationName, OperationOutput } from "../broker/operations/index.js";
import type { JobEnd } from "../model/job.js";
import type { Submission } from "../model/job-input.js";
import type { OutputStream } from "../model/outcome.js";
import type { EndedTask, JobProgress } from "../model/progress.js";
import type { Range } from "../model/ranges.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import type { OutputPiece } from "../model/store.js";
import { addressesOf, type InProcessBroker } from "../protocols/laboro/broker-address.js";
import { type FollowOptions, followJob } from "./follow.js";
import { ClientLink, DEFAULT_TIMEOUT_MS } from "./link.js";

export interface ConnectOptions {
  /** One broker, or the brokers of a group, by their URLs; or what `startBroker` returned in this process. */
  readonly broker: string | readonly string[] | InProcessBroker;
  /** Not needed for a broker in this process. */
  readonly token?: string;
  /** Of the CA that a broker's certificate must come from, as its join URL has it. */
  readonly caFingerprint?: string | undefined;
  readonly name?: string;
  readonly connectTimeoutMs?: number;
}

export interface CallOptions {
  /** Rejects with LABORO_DEADLINE after this time, also while no broker can be reached. Nothing is begun later than that. */
  readonly timeoutMs?: number;
  /** Rejects at once with its reason when it is aborted. */
  readonly signal?: AbortSignal;
}

/** `timeoutMs` is 30 s if absent. */
export interface RequestOptions extends CallOptions {
  readonly pool?: string;
  /** Let another worker answer, once, where the first is lost. For requests that may be done twice. */
  readonly retry?: boolean;
}

export type JobInfo = OperationOutput<"job">;
export type TaskResult = OperationOutput<"tasks">["tasks"][number];
export type WorkerInfo = OperationOutput<"workers">["workers"][number];

const CONNECT_TIMEOUT_MS = 10_000;

/** A connected client; rejects with a code where the broker cannot be reached or refuses. */
export async function connect(options: ConnectOptions): Promise<Client> {
  const link = new ClientLink({
    ...addressesOf(options),
    name: options.name ?? `client:${process.pid}`,
    connectTimeoutMs: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
    ...(options.caFingerprint === undefined ? {} : { caFingerprint: options.caFingerprint }),
  });
  await link.ready();
  return new Client(link);
}

export class Client {
  readonly #link: ClientLink;

  constructor(link: ClientLink) {
    this.#link = link;
  }

  /**
   * Durable when it resolves. One job is made, also where the connection is lost before the answer and the submission is repeated. After
   * LABORO_DEADLINE (30 s if `timeoutMs` is absent), `jobs({ idempotencyKey })` says whether it was made.
   */
  async submit(submission: Submission, options: CallOptions = {}): Promise<JobHandle> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
    const input = { ...submission, idempotencyKey: submission.idempotencyKey ?? crypto.randomUUID() };
    const message = { type: "OPERATION", operation: "submit", input } as const;
    const answer = await this.#link.sendAndWait(message, { timeoutMs, signal, repeatable: true });
    return new JobHandle(this, (answer as OperationOutput<"submit">).job);
  }

  job(id: number): JobHandle {
    return new JobHandle(this, id);
  }

  /** Newest first, a page at a time. */
  jobs(options: OperationInput<"jobs"> = {}): Promise<OperationOutput<"jobs">> {
    return this.ask("jobs", options);
  }

  async workers(): Promise<readonly WorkerInfo[]> {
    return (await this.ask("workers", {})).workers;
  }

  async drain(worker: string): Promise<void> {
    await this.ask("drain", { worker });
  }

  /** Lets it end its tasks and leave; with `slots` only so many of its slots, with `now` without waiting for its tasks. */
  async stopWorker(worker: string, options: Omit<OperationInput<"stop">, "worker"> = {}): Promise<void> {
    await this.ask("stop", { worker, ...options });
  }

  /** Ask a service; rejects with LABORO_SERVICE_FAILED and the service's message if it failed. */
  async request(service: string, body: Uint8Array | string = "", options: RequestOptions = {}): Promise<Uint8Array> {
    const { pool = DEFAULT_POOL, retry = false } = options;
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const message = { type: "REQUEST", service, body: bytes, pool, retry } as const;
    return (await this.#link.sendAndWait(message, options)) as Uint8Array;
  }

  /** An operation of the broker by name; docs/reference/api.md lists them. */
  ask<Name extends OperationName>(
    operation: Name,
    input: OperationInput<Name>,
    options?: CallOptions,
  ): Promise<OperationOutput<Name>>;
  ask(operation: string, input: unknown, options?: CallOptions): Promise<unknown>;
  ask(operation: string, input: unknown, { timeoutMs, signal }: CallOptions = {}): Promise<unknown> {
    return this.#link.sendAndWait({ type: "OPERATION", operation, input }, { timeoutMs, signal });
  }

  /** What happens at a job, as it happens, until it has ended. Goes on after a restart of the broker. */
  follow(job: number, options?: FollowOptions): AsyncGenerator<JobProgress, void> {
    return followJob(this.#link, job, options);
  }

  /** True after `close`, or when the broker has refused the client: nothing more is answered. */
  get closed(): boolean {
    return this.#link.closed;
  }

  close(): void {
    this.#link.close();
  }
}

export class JobHandle {
  readonly id: number;
  readonly #client: Client;

  constructor(client: Client, id: number) {
    this.#client = client;
    this.id = id;
  }

  /** How it ended, once it has. Survives a restart of the broker. */
  async wait(options: CallOptions = {}): Promise<JobEnd> {
    for await (const { ended } of this.#client.follow(this.id, { ...options, tasks: false }))
      if (ended !== undefined) return ended;
    throw new LaboroError("LABORO_INTERNAL", `job ${this.id} was not followed to its end`);
  }

  info(): Promise<JobInfo> {
    return this.#client.ask("job", { job: this.id });
  }

  /**
   * In order of index, fetched page by page; with `follow` as tasks end, until the job has ended, each with its output if that is small.
   * Cancelled tasks that never ran have none.
   */
  async *results(options: { readonly follow?: boolean } = {}): AsyncGenerator<TaskResult & Pick<EndedTask, "output">> {
    if (options.follow === true) {
      for await (const { tasks } of this.#client.follow(this.id)) yield* tasks;
      return;
    }
    let from: number | undefined = 0;
    while (from !== undefined) {
      const page: OperationOutput<"tasks"> = await this.#client.ask("tasks", { job: this.id, from });
      yield* page.tasks;
      from = page.next;
    }
  }

  /** The pieces of a task's output in order; a jump in the offsets is what the cap dropped. */
  async *output(index: number, options: { attempt?: number; stream?: OutputStream } = {}): AsyncGenerator<OutputPiece> {
    let from: number | undefined = 0;
    while (from !== undefined) {
      const input: OperationInput<"output"> = { job: this.id, index, from, ...options };
      const page: OperationOutput<"output"> = await this.#client.ask("output", input);
      yield* page.pieces;
      from = page.next;
    }
  }

  /** All of one stream of a task as text. */
  async text(index: number, stream: OutputStream = "stdout"): Promise<string> {
    const parts: Uint8Array[] = [];
    for await (const piece of this.output(index, { stream })) parts.push(piece.bytes);
    return Buffer.concat(parts).toString();
  }

  async explain(index: number): Promise<string> {
    return (await this.#client.ask("explain", { job: this.id, index })).reason;
  }

  async hold(): Promise<void> {
    await this.#client.ask("hold", { job: this.id });
  }

  async release(): Promise<void> {
    await this.#client.ask("release", { job: this.id });
  }

  /** Durable when it resolves: these tasks, or all, end as cancelled, even if a result arrives later. */
  async cancel(tasks?: readonly Range[], reason?: string): Promise<void> {
    await this.#client.ask("cancel", { job: this.id, ...(tasks && { tasks }), ...(reason && { reason }) });
  }

  /** Run finished tasks again: those that failed or were cancelled, unless other states are named. Returns how many. */
  async rerun(options: { states?: readonly JobEnd[]; tasks?: readonly Range[] } = {}): Promise<number> {
    return (await this.#client.ask("rerun", { job: this.id, ...options })).count;
  }
}
