/** The client API: jobs, services, events. */
import { badInput, LaboroError } from "../base/errors.js";
import type { EventBody, OperationInput, OperationName, OperationOutput } from "../broker/operations/index.js";
import type { Submission } from "../model/job-input.js";
import type { JobProgress } from "../model/outcome.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import { asBuffer, decodeOutput, encodeInput, type TaskDefinition } from "../model/task-definition.js";
import { addressesOf, type InProcessBroker } from "../protocols/laboro/broker-address.js";
import { type FollowOptions, followJob } from "./follow.js";
import { JobHandle } from "./job-handle.js";
import { ClientLink, DEFAULT_TIMEOUT_MS } from "./link.js";
import { Allocators, Schedules } from "./schedules.js";

export { JobHandle, type JobInfo, type TaskResult } from "./job-handle.js";

/** Which broker to connect to, and with which credentials. */
export interface ConnectOptions {
  /** A broker, or the brokers of a group, by URL or join URL; or the return value of `startBroker` in this process. */
  readonly broker: string | readonly string[] | InProcessBroker;
  /** Not needed with a join URL, or for a broker in this process. */
  readonly token?: string;
  /** The fingerprint of the CA that signs the broker's certificate, as in its join URL. */
  readonly caFingerprint?: string | undefined;
  /** What `status` and the dashboard call this client. */
  readonly name?: string;
  /** Rejects with LABORO_BROKER_UNREACHABLE after this time; 10 s if absent. */
  readonly connectTimeoutMs?: number;
  /** Ends the attempt to connect, not the connection. */
  readonly signal?: AbortSignal;
  /** Reject at once if nothing listens at any of the addresses. Once connected, it reconnects as any other client. */
  readonly failFast?: boolean;
  /** False: a lost connection closes the client, and rejects what waits with LABORO_BROKER_GONE. True if absent. */
  readonly reconnect?: boolean;
}

/** How long to wait for an answer. */
export interface CallOptions {
  /** Rejects with LABORO_DEADLINE after this time, even if no broker can be reached. Nothing is begun later. */
  readonly timeoutMs?: number | undefined;
  /** Rejects at once with its reason when it is aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** `timeoutMs` is 30 s if absent. */
export interface RequestOptions extends CallOptions {
  /** Workers of this pool; of the pool `default` if absent. */
  readonly pool?: string;
  /** Let another worker answer if the first is lost, once. For requests that may run twice. */
  readonly retry?: boolean;
}

/** A job to come after: its success is needed, or with `any` its end; with `each` task i comes after task i. */
export type After =
  | number
  | JobHandle<unknown>
  | { readonly job: number | JobHandle<unknown>; readonly any?: boolean; readonly each?: boolean };

/** How the tasks of a definition are to be run. */
export interface AddOptions
  extends CallOptions,
    Omit<Submission, "recipe" | "entries" | "count" | "numbers" | "after" | "relay" | "resumes"> {
  /** The jobs that it comes after. */
  readonly after?: After | readonly After[];
}

/** What happened at the broker. `missed`: events before this one are no longer kept, the state has to be read again. */
export type BrokerEvent = { readonly id: number; readonly at: number } & (
  | Exclude<EventBody, { kind: "task-progress" }>
  | (Omit<Progressed, "progress"> & {
      /** What the handler gave as its progress. */
      readonly progress: unknown;
    })
  | { readonly kind: "missed" }
);

type Progressed = Extract<EventBody, { kind: "task-progress" }>;

/** Which events. */
export interface EventOptions {
  /** The id of the last event that was seen: what follows it comes first. Only new events if absent. */
  readonly after?: number;
  /** Of this job only. */
  readonly job?: number;
  /** Ends the stream of events: its reason is thrown. */
  readonly signal?: AbortSignal;
}

/** A worker as the broker knows it: slots, tags, services, current work. */
export type WorkerInfo = OperationOutput<"workers">["workers"][number];

const CONNECT_TIMEOUT_MS = 10_000;

const EVENTS_WAIT_MS = 30_000;

/** A connected client, by a join URL or by options. Rejects with a code if the broker cannot be reached or refuses. */
export async function connect(broker: string | ConnectOptions): Promise<Client> {
  const options = typeof broker === "object" ? broker : { broker };
  const link = new ClientLink({
    ...addressesOf(options),
    name: options.name ?? `client:${process.pid}`,
    connectTimeoutMs: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
    failFast: options.failFast ?? false,
    reconnect: options.reconnect ?? true,
  });
  try {
    await link.ready({ signal: options.signal });
  } catch (cause) {
    link.close();
    throw cause;
  }
  return new Client(link);
}

/** A connection to the broker. It reconnects by itself. */
export class Client {
  readonly #link: ClientLink;
  /** Begins with the time, so that new keys are neighbours in the store's index. Random ones touch a page each. */
  readonly #keyPrefix = `${Date.now().toString(36)}-${randomText()}${randomText()}`;
  #submissions = 0;
  /** Jobs that the broker submits at points in time. */
  readonly schedules = new Schedules(this);
  /** Batch systems that run workers while work waits. */
  readonly allocators = new Allocators(this);

  constructor(link: ClientLink) {
    this.#link = link;
  }

  /** Resolves when the link is open; rejects when the broker has refused this client, for a wrong token for example. */
  ready(options?: CallOptions): Promise<void> {
    return this.#link.ready(options);
  }

  /** A job of one task. Rejects with LABORO_BAD_INPUT for an input that the task's schema refuses. */
  add<Input, Output>(
    task: TaskDefinition<Input, Output, unknown>,
    input: NoInfer<Input>,
    options?: AddOptions,
  ): Promise<JobHandle<Output>> {
    return this.addMany(task, [input], options);
  }

  /** One job with a task for each input. */
  async addMany<Input, Output>(
    task: TaskDefinition<Input, Output, unknown>,
    inputs: readonly NoInfer<Input>[],
    { timeoutMs, signal, after, ...options }: AddOptions = {},
  ): Promise<JobHandle<Output>> {
    if (!Array.isArray(inputs)) throw badInput(`addMany: expected an array of inputs, got ${typeof inputs}`);
    const entries: (string | Uint8Array)[] = [];
    for (const input of inputs) entries.push(await encodeInput(task, input));
    const recipe = { kind: "call" as const, service: task.name };
    const dependencies = after === undefined ? {} : { after: dependenciesOf(after) };
    const submission: Submission = { ...options, ...dependencies, recipe, entries };
    const job = await this.submit(submission, { timeoutMs, signal });
    return new JobHandle(this, job.id, task, job.existed);
  }

  /**
   * Durable when it resolves. One job is created, even if the connection is lost before the answer and the submission
   * is repeated. After LABORO_DEADLINE (30 s if `timeoutMs` is absent), `jobs({ idempotencyKey })` tells whether it was
   * created.
   */
  async submit(submission: Submission, options: CallOptions = {}): Promise<JobHandle> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
    const input = { ...withoutDates(submission), idempotencyKey: submission.idempotencyKey ?? this.#nextKey() };
    const message = { type: "OPERATION", operation: "submit", input } as const;
    const answer = await this.#link.sendAndWait(message, { timeoutMs, signal, repeatable: true });
    const { job, existed } = answer as OperationOutput<"submit">;
    return new JobHandle(this, job, undefined, existed);
  }

  /** Adds tasks to an open job, like `job(id).append`. */
  async append(given: OperationInput<"append">, options: CallOptions = {}): Promise<OperationOutput<"append">> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
    const input = { ...given, idempotencyKey: given.idempotencyKey ?? this.#nextKey() };
    const message = { type: "OPERATION", operation: "append", input } as const;
    const answer = await this.#link.sendAndWait(message, { timeoutMs, signal, repeatable: true });
    return answer as OperationOutput<"append">;
  }

  #nextKey(): string {
    return `${this.#keyPrefix}-${(++this.#submissions).toString(36).padStart(6, "0")}`;
  }

  /** A job by its number; with its task, the results are typed. */
  job(id: number): JobHandle;
  job<Output>(id: number, task: TaskDefinition<unknown, Output, unknown>): JobHandle<Output>;
  job(id: number, task?: TaskDefinition): JobHandle<unknown> {
    return new JobHandle(this, id, task);
  }

  /** Newest first, a page at a time. */
  jobs(which: OperationInput<"jobs"> = {}, options?: CallOptions): Promise<OperationOutput<"jobs">> {
    return this.ask("jobs", which, options);
  }

  /** All workers, connected or not. */
  async workers(options?: CallOptions): Promise<readonly WorkerInfo[]> {
    return (await this.ask("workers", {}, options)).workers;
  }

  /** Assigns nothing new to a worker. */
  async drain(worker: string, options?: CallOptions): Promise<void> {
    await this.ask("drain", { worker }, options);
  }

  /** Assigns tasks to a drained worker again. False if it was not drained. */
  async undrain(worker: string, options?: CallOptions): Promise<boolean> {
    return (await this.ask("undrain", { worker }, options)).drained;
  }

  /** Starts no task of a pool, at any broker, until `resumePool`. */
  async pausePool(pool: string, reason?: string, options?: CallOptions): Promise<void> {
    await this.ask("poolPause", { pool, ...(reason === undefined ? {} : { reason }) }, options);
  }

  /** False if the pool was not paused. */
  async resumePool(pool: string, options?: CallOptions): Promise<boolean> {
    return (await this.ask("poolResume", { pool }, options)).paused;
  }

  /** Lets a worker finish its tasks and leave. `slots`: ends only this many slots. `now`: does not wait for tasks. */
  async stopWorker(
    worker: string,
    how: Omit<OperationInput<"stop">, "worker"> = {},
    options?: CallOptions,
  ): Promise<void> {
    await this.ask("stop", { worker, ...how }, options);
  }

  /** Asks a service. Rejects with LABORO_SERVICE_FAILED and the service's message if it failed. */
  async request(service: string, body: Uint8Array | string = "", options: RequestOptions = {}): Promise<Buffer> {
    const { pool = DEFAULT_POOL, retry = false } = options;
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const message = { type: "REQUEST", service, body: bytes, pool, retry } as const;
    return asBuffer((await this.#link.sendAndWait(message, options)) as Uint8Array);
  }

  /** Asks a service that speaks JSON, or a task's handler. A request is not stored. */
  call(service: string, value: unknown, options?: RequestOptions): Promise<unknown>;
  // The last one, because a compiler explains why the last one does not fit.
  /** Asks a service that speaks JSON, or a task's handler. A request is not stored. */
  call<Input, Output>(
    task: TaskDefinition<Input, Output, unknown>,
    input: NoInfer<Input>,
    options?: RequestOptions,
  ): Promise<Output>;
  async call(given: TaskDefinition | string, value: unknown, options?: RequestOptions): Promise<unknown> {
    const task = typeof given === "string" ? { name: given, input: undefined, output: undefined } : given;
    const reply = await this.request(task.name, await encodeInput(task, value), options);
    return decodeOutput(task, reply);
  }

  /** An operation of the broker by name; docs/reference/api.md lists them. */
  ask<Name extends OperationName>(
    operation: Name,
    input: OperationInput<Name>,
    { timeoutMs, signal }: CallOptions = {},
  ): Promise<OperationOutput<Name>> {
    const message = { type: "OPERATION", operation, input: withoutDates(input) } as const;
    const answer = this.#link.sendAndWait(message, { timeoutMs, signal });
    return answer as Promise<OperationOutput<Name>>;
  }

  /** Events as they happen, across lost connections and restarts of the broker, until the signal is aborted. */
  async *events({ after, job, signal }: EventOptions = {}): AsyncGenerator<BrokerEvent, void> {
    const which = job === undefined ? {} : { job };
    let last = after ?? (await this.ask("events", which, { signal })).last;
    for (;;) {
      let page: OperationOutput<"events">;
      try {
        page = await this.ask("events", { ...which, after: last, waitMs: EVENTS_WAIT_MS }, { signal });
      } catch (cause) {
        if (!(cause instanceof LaboroError) || cause.code !== "LABORO_BROKER_GONE" || this.closed) throw cause;
        await this.ready({ signal });
        continue;
      }
      if (page.missed) yield { id: last, at: Date.now(), kind: "missed" };
      for (const { progress, ...event } of page.events)
        yield { ...event, ...(progress !== undefined && { progress: JSON.parse(progress) }) } as BrokerEvent;
      last = page.last;
    }
  }

  /** The progress of a job until it has ended. Continues after a restart of the broker. */
  follow(job: number, options?: FollowOptions): AsyncGenerator<JobProgress, void> {
    return followJob(this.#link, job, options);
  }

  /** True after `close`, or when the broker has refused the client: nothing more is answered. */
  get closed(): boolean {
    return this.#link.closed;
  }

  /** Ends the connection. Whatever waits for an answer is rejected. */
  close(): void {
    this.#link.close();
  }

  /** `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/** Times as the link sends them. */
function withoutDates<Input extends object>(input: Input): Input {
  if (!Object.values(input).some((value) => value instanceof Date)) return input;
  const members = Object.entries(input).map(([name, value]) => [name, value instanceof Date ? value.getTime() : value]);
  return Object.fromEntries(members) as Input;
}

/** For unique names. It is no secret, so the crypto module is not loaded. */
const randomText = (): string => Math.random().toString(36).slice(2);

function dependenciesOf(
  after: After | readonly After[],
): { readonly job: number; readonly any?: boolean; readonly each?: boolean }[] {
  const idOf = (job: number | JobHandle<unknown> | undefined): number => {
    const id = typeof job === "number" ? job : job?.id;
    if (typeof id === "number") return id;
    throw badInput(`after: expected a job, its number, or { job }, got ${JSON.stringify(job ?? after)}`);
  };
  return [after].flat().map((one: After) => {
    if (typeof one === "number" || one instanceof JobHandle) return { job: idOf(one) };
    const { job, any, each } = one ?? {};
    return { job: idOf(job), ...(any === true && { any }), ...(each === true && { each }) };
  });
}
