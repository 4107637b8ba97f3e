/** Tasks of kind `call` at a worker that knows only requests: each is sent as a request, and the answer is the task's output and result. */
import { randomUUID } from "node:crypto";
import { now } from "../../base/clock.js";
import type { ErrorCode } from "../../base/errors.js";
import type { AttemptRange, WorkerProfile } from "../../dispatch/index.js";
import { SessionId, WorkerId } from "../../model/ids.js";
import type { Entries, Job } from "../../model/job.js";
import type { Core } from "../core.js";
import { isInRanges, rangeOf } from "./assigned-tasks.js";

export interface TaskCall {
  readonly name: string;
  readonly service: string;
  readonly body: Uint8Array;
  readonly done: (body: Uint8Array, error: ErrorCode | undefined) => void;
}

const OUTPUT_CHUNK = 32 * 1024;
const EMPTY = new Uint8Array(0);

interface RunningCall {
  readonly job: Job["id"];
  readonly index: number;
  readonly attempt: number;
  readonly timer: NodeJS.Timeout;
}

export class CallTasks {
  readonly #core: Core;
  readonly #worker: WorkerId;
  readonly #timeoutMs: number;
  readonly #running = new Map<string, RunningCall>();

  /** `timeoutMs` is for jobs without a time limit of their own. */
  constructor(core: Core, worker: WorkerId, timeoutMs: number) {
    this.#core = core;
    this.#worker = worker;
    this.#timeoutMs = timeoutMs;
  }

  /** `send` passes each task to the worker; `expired` is called for a task that took too long. */
  begin(
    { id, recipe, limits }: Job,
    { first, last, attempt }: AttemptRange,
    entries: Entries | undefined,
    send: (call: TaskCall) => void,
    expired: (name: string) => void,
  ): void {
    if (recipe.kind !== "call") return;
    const limit = Math.min(limits.timeLimitMs ?? this.#timeoutMs, 2 ** 31 - 1);
    for (let index = first; index <= last; index++) {
      const entry = entries?.[index - first];
      const name = nameOf(id, index);
      const started = now();
      const timer = setTimeout(() => expired(name), limit);
      this.#running.set(name, { job: id, index, attempt, timer });
      this.#core.workerStarted(this.#worker, [{ job: id, index, attempt }]);
      const body =
        entry === undefined ? (recipe.body ?? EMPTY) : typeof entry === "string" ? Buffer.from(entry) : entry;
      send({ name, service: recipe.service, body, done: (answer, error) => this.#ended(name, started, answer, error) });
    }
  }

  /** The names of the running tasks in these ranges. */
  runningIn(tasks: readonly AttemptRange[]): string[] {
    return [...this.#running].filter(([, task]) => isInRanges(task, tasks)).map(([name]) => name);
  }

  /** The task was cancelled: the worker may still run it, but the answer is not used. */
  returnTask(name: string): void {
    const task = this.#remove(name);
    if (task === undefined) return;
    this.#core.workerRetracted(this.#worker, [rangeOf(task)]);
  }

  clear(): void {
    for (const name of [...this.#running.keys()]) this.#remove(name);
  }

  #ended(name: string, started: number, answer: Uint8Array, error: ErrorCode | undefined): void {
    const task = this.#remove(name);
    if (task === undefined) return;
    const { job, index, attempt } = task;
    const end = { job, index, attempt, started, ended: now() };
    if (error !== undefined) {
      const why = Buffer.from(answer).toString() || error;
      const timedOut = error === "LABORO_DEADLINE" ? { timedOut: true } : {};
      this.#core.workerDone(this.#worker, [{ ...end, code: 1, error: why, outputBytes: 0, ...timedOut }], () => {});
      return;
    }
    for (let offset = 0; offset < answer.length; offset += OUTPUT_CHUNK) {
      const bytes = answer.subarray(offset, offset + OUTPUT_CHUNK);
      this.#core.workerOutput(this.#worker, [{ job, index, attempt, stream: "stdout", offset, bytes }], () => {});
    }
    this.#core.workerDone(this.#worker, [{ ...end, code: 0, outputBytes: answer.length }], () => {});
  }

  #remove(name: string): RunningCall | undefined {
    const task = this.#running.get(name);
    this.#running.delete(name);
    clearTimeout(task?.timer);
    return task;
  }
}

const nameOf = (job: Job["id"], index: number): string => `task ${job}.${index}`;

/** The profile of a worker that takes calls one by one, and has none from before. */
export const callWorkerProfile = (
  protocol: string,
  { name, pool, address }: { readonly name: string; readonly pool: string; readonly address: string },
  services: readonly string[],
  slots: number,
): WorkerProfile => ({
  id: WorkerId(`${protocol}:${name}`),
  session: SessionId(randomUUID()),
  name,
  protocol,
  pool,
  tags: [],
  services,
  total: { slots },
  reserveRequests: 0,
  resumable: false,
  canPrefetch: false,
  taskKinds: ["call"],
  address,
});
