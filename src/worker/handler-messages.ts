/** What handlers send to the broker besides results: how far they are, and which results they want to read. */
import { badInput, LaboroError } from "../base/errors.js";
import { JobId } from "../model/ids.js";
import type { FromWorker, TaskRef, ToWorker } from "../protocols/laboro/messages.js";
import type { ResultsPage } from "./services.js";
import type { FetchResults } from "./task-runner.js";

type Send = (message: FromWorker) => void;
type Query = Extract<FromWorker, { type: "GET_RESULTS" }>;

interface PendingQuery {
  readonly query: Query;
  readonly resolve: (page: ResultsPage) => void;
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

  readonly fetchResults: FetchResults = (job, of, from, limit) => {
    if (this.#closed) return Promise.reject(new LaboroError("LABORO_BROKER_GONE", "this worker has stopped"));
    const id = ++this.#lastId;
    const query: Query = { type: "GET_RESULTS", id, job, of: JobId(of), from, limit };
    return new Promise((resolve, reject) => {
      this.#queries.set(id, { query, resolve, reject });
      this.#send?.(query);
    });
  };

  answered({ id, tasks, next, refused }: Extract<ToWorker, { type: "RESULTS" }>): void {
    const pending = this.#queries.get(id);
    this.#queries.delete(id);
    if (refused === undefined) pending?.resolve({ tasks, next });
    else pending?.reject(badInput(refused));
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
