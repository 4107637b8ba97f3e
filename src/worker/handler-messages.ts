/** Messages of tasks besides output and results: progress of handlers, queries for results, parts of files. */
import { badInput, LaboroError } from "../base/errors.js";
import { JobId } from "../model/ids.js";
import type { FromWorker, TaskRef, ToWorker } from "../protocols/laboro/messages.js";
import type { FetchResults } from "./task-runner.js";

type Send = (message: FromWorker) => void;
type Answer = Extract<ToWorker, { type: "RESULTS" | "FILE" }>;
type Query = Extract<FromWorker, { type: "GET_RESULTS" | "GET_FILE" | "PUT_FILE" }>;

interface PendingQuery {
  readonly query: Query;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: LaboroError) => void;
}

/** Progress goes out at most this often. Of each task the last value counts. */
const PROGRESS_MS = 500;

export class HandlerMessages {
  readonly #queries = new Map<number, PendingQuery>();
  readonly #progress = new Map<string, TaskRef & { readonly value: string }>();
  #timer: NodeJS.Timeout | undefined;
  #send: Send | undefined;
  #lastId = 0;
  #closed = false;

  /** A new connection: unanswered queries are sent again. */
  resume(send: Send): void {
    this.#send = send;
    for (const { query } of this.#queries.values()) send(query);
    if (this.#timer === undefined) this.#sendProgress();
  }

  pause(): void {
    this.#send = undefined;
  }

  progress({ job, index, attempt }: TaskRef, value: string): void {
    this.#progress.set(`${job}.${index}`, { job, index, attempt, value });
    if (this.#timer === undefined) this.#sendProgress();
  }

  /** Its result is to be sent: its last progress goes before it. */
  ended({ job, index }: TaskRef): void {
    const last = this.#progress.get(`${job}.${index}`);
    if (last === undefined || this.#send === undefined) return;
    this.#progress.delete(`${job}.${index}`);
    this.#send({ type: "TASK_PROGRESS", tasks: [last] });
  }

  readonly fetchResults: FetchResults = async (job, of, from, limit) => {
    const answer = await this.#ask((id) => ({ type: "GET_RESULTS", id, job, of: JobId(of), from, limit }));
    return answer.type === "RESULTS" ? answer : { tasks: [] };
  };

  async getFile(job: JobId, file: number, from: number): Promise<Uint8Array> {
    const answer = await this.#ask((id) => ({ type: "GET_FILE", id, job, file, from }));
    return answer.type === "FILE" ? answer.bytes : new Uint8Array(0);
  }

  /** Resolves when the bytes are stored. */
  async putFile({ job, index, attempt }: TaskRef, from: number, bytes: Uint8Array): Promise<void> {
    await this.#ask((id) => ({ type: "PUT_FILE", id, job, index, attempt, from, bytes }));
  }

  #ask(queryWith: (id: number) => Query): Promise<Answer> {
    if (this.#closed) return Promise.reject(new LaboroError("LABORO_BROKER_GONE", "this worker has stopped"));
    const id = ++this.#lastId;
    const query = queryWith(id);
    return new Promise((resolve, reject) => {
      this.#queries.set(id, { query, resolve, reject });
      this.#send?.(query);
    });
  }

  answered(answer: Answer): void {
    const pending = this.#queries.get(answer.id);
    this.#queries.delete(answer.id);
    if (answer.refused === undefined) pending?.resolve(answer);
    else pending?.reject(badInput(answer.refused));
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.pause();
    const error = new LaboroError("LABORO_BROKER_GONE", "this worker has stopped");
    for (const { reject } of this.#queries.values()) reject(error);
    this.#queries.clear();
  }

  #sendProgress(): void {
    this.#timer = undefined;
    if (this.#progress.size === 0 || this.#send === undefined) return;
    const tasks = [...this.#progress.values()];
    this.#progress.clear();
    this.#send({ type: "TASK_PROGRESS", tasks });
    this.#timer = setTimeout(() => this.#sendProgress(), PROGRESS_MS);
  }
}
