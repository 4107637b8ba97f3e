/** What a program asks a broker: jobs, their results and output, and services. */
import { LaboroError } from "../model/errors.js";
import type { Job, JobEnd } from "../model/job.js";
import type { Submission } from "../model/job-input.js";
import type { OutputStream, TaskResult } from "../model/outcome.js";
import type { Range } from "../model/ranges.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import type { JobPage, OutputPage, OutputPiece, ResultPage } from "../store/contract.js";
import { ClientLink } from "./link.js";

export interface ConnectOptions {
  /** One broker, or the brokers of a group. */
  readonly broker: string | readonly string[];
  readonly token: string;
  readonly name?: string;
  readonly connectTimeoutMs?: number;
}

export interface RequestOptions {
  /** How long to wait for the answer; 30 s if absent. */
  readonly timeoutMs?: number;
  readonly pool?: string;
  /** Let another worker answer, once, where the first is lost. For requests that may be done twice. */
  readonly retry?: boolean;
  readonly signal?: AbortSignal;
}

export interface WorkerInfo {
  readonly id: string;
  readonly name: string;
  readonly protocol: string;
  readonly pool: string;
  readonly tags: readonly string[];
  readonly services: readonly string[];
  readonly connected: boolean;
  readonly draining: boolean;
  readonly standing: string;
  readonly total: Readonly<Record<string, number>>;
  readonly free: Readonly<Record<string, number>>;
  readonly tasks: number;
  readonly stock: number;
  readonly requests: number;
}

const DEFAULT_TIMEOUT_MS = 30_000;
const CONNECT_TIMEOUT_MS = 10_000;

/** A connected client; rejects with a code where the broker cannot be reached or refuses. */
export async function connect(options: ConnectOptions): Promise<Client> {
  const link = new ClientLink({
    urls: typeof options.broker === "string" ? [options.broker] : options.broker,
    token: options.token,
    name: options.name ?? `client:${process.pid}`,
    connectTimeoutMs: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
  });
  await link.ready();
  return new Client(link);
}

export class Client {
  readonly #link: ClientLink;

  constructor(link: ClientLink) {
    this.#link = link;
  }

  /** Durable when it resolves. */
  async submit(submission: Submission): Promise<JobHandle> {
    const { job } = (await this.ask("submit", submission)) as { job: number };
    return new JobHandle(this, job);
  }

  job(id: number): JobHandle {
    return new JobHandle(this, id);
  }

  async jobs(options: { readonly before?: number; readonly limit?: number } = {}): Promise<JobPage> {
    return (await this.ask("jobs", options)) as JobPage;
  }

  async workers(): Promise<readonly WorkerInfo[]> {
    return ((await this.ask("workers", {})) as { workers: WorkerInfo[] }).workers;
  }

  async drain(worker: string): Promise<void> {
    await this.ask("drain", { worker });
  }

  async stopWorker(worker: string): Promise<void> {
    await this.ask("stop", { worker });
  }

  /** Ask a service; rejects with LABORO_SERVICE_FAILED and the service's words where it could not do it. */
  async request(service: string, body: Uint8Array | string = "", options: RequestOptions = {}): Promise<Uint8Array> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, pool = DEFAULT_POOL, retry = false, signal } = options;
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const make = (id: number) => ({ type: "REQUEST" as const, id, service, body: bytes, timeoutMs, pool, retry });
    return (await this.#link.question(make, signal)) as Uint8Array;
  }

  /** An operation of the broker by name. */
  ask(operation: string, input: unknown): Promise<unknown> {
    return this.#link.question((id) => ({ type: "ASK", id, operation, input }));
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
  async wait(): Promise<JobEnd> {
    for (;;) {
      try {
        return ((await this.#client.ask("wait", { job: this.id })) as { state: JobEnd }).state;
      } catch (cause) {
        // Waiting changes nothing, so it may be asked again.
        const code = cause instanceof LaboroError ? cause.code : undefined;
        if (code !== "LABORO_BROKER_GONE" && code !== "LABORO_BROKER_STOPPING") throw cause;
      }
    }
  }

  async info(): Promise<Job> {
    return (await this.#client.ask("job", { job: this.id })) as Job;
  }

  /** In order of index, fetched page by page. Cancelled tasks that never ran have none. */
  async *results(): AsyncGenerator<TaskResult> {
    let from: number | undefined = 0;
    while (from !== undefined) {
      const page = (await this.#client.ask("results", { job: this.id, from })) as ResultPage;
      yield* page.results;
      from = page.next;
    }
  }

  /** The pieces of a task's output in order; a jump in the offsets is what the cap dropped. */
  async *output(index: number, options: { attempt?: number; stream?: OutputStream } = {}): AsyncGenerator<OutputPiece> {
    let from: number | undefined = 0;
    while (from !== undefined) {
      const page = (await this.#client.ask("output", { job: this.id, index, from, ...options })) as OutputPage;
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
    return ((await this.#client.ask("explain", { job: this.id, index })) as { why: string }).why;
  }

  async hold(): Promise<void> {
    await this.#client.ask("hold", { job: this.id });
  }

  async release(): Promise<void> {
    await this.#client.ask("release", { job: this.id });
  }

  /** Durable when it resolves: these tasks, or all, end cancelled whatever arrives. */
  async cancel(tasks?: readonly Range[], reason?: string): Promise<void> {
    await this.#client.ask("cancel", { job: this.id, ...(tasks && { tasks }), ...(reason && { reason }) });
  }
}
