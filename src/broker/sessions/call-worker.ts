/**
 * A worker that knows only requests, between the core and the session of its protocol. A task of kind `call` is also
 * sent as a request: the answer is the task's output and result.
 */
import { randomUUID } from "node:crypto";
import { MAX_TIMER_MS, now } from "../../base/clock.js";
import type { ErrorCode } from "../../base/errors.js";
import type { AttemptRange, WorkerProfile } from "../../dispatch/index.js";
import { type RequestId, SessionId, WorkerId } from "../../model/ids.js";
import type { Entries, Job } from "../../model/job.js";
import type { Core } from "../core.js";
import type { WorkerPort } from "../core-view.js";
import { isInRanges, rangeOf } from "./assigned-tasks.js";

/** A request of a client, or a task. */
export interface WorkerCall {
  /** Unique at this worker. */
  readonly name: string;
  readonly service: string;
  readonly body: Uint8Array;
  /** For a request: how long its client waits. */
  readonly timeoutMs?: number;
  /** For a task. */
  readonly attempt?: number;
  readonly attachment?: unknown;
  /** Called when the worker has answered or lost the call. */
  readonly done: (body: Uint8Array, error?: ErrorCode, attachment?: unknown) => void;
}

interface RunningTask {
  readonly job: Job["id"];
  readonly index: number;
  readonly attempt: number;
  readonly timer: NodeJS.Timeout;
}

const OUTPUT_CHUNK = 32 * 1024;
const EMPTY = new Uint8Array(0);

export abstract class CallWorker implements WorkerPort {
  protected readonly core: Core;
  protected profile: WorkerProfile;
  readonly #taskTimeoutMs: number;
  readonly #tasks = new Map<string, RunningTask>();

  /** `taskTimeoutMs`: for jobs without a time limit. */
  constructor(core: Core, profile: WorkerProfile, taskTimeoutMs = MAX_TIMER_MS) {
    this.core = core;
    this.profile = profile;
    this.#taskTimeoutMs = taskTimeoutMs;
  }

  protected abstract sendCall(call: WorkerCall): void;
  /** The client no longer waits; the worker may continue. `then` is called unless the call was abandoned before. */
  protected abstract abandonCall(name: string, then: (call: WorkerCall) => void): void;
  abstract stop(): void;
  abstract close(reason: string): void;

  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment?: unknown): void {
    const done: WorkerCall["done"] = (answer, error, attached) =>
      this.core.requests.replied(this.profile.id, request, answer, error, attached);
    this.sendCall({ name: String(request), service, body, timeoutMs, attachment, done });
  }

  cancelCall(request: RequestId): void {
    this.abandonCall(String(request), ({ done }) => done(EMPTY, "LABORO_DEADLINE"));
  }

  assign({ id, recipe, limits }: Job, { first, last, attempt }: AttemptRange, entries: Entries | undefined): void {
    if (recipe.kind !== "call") return;
    const limitMs = Math.min(limits.timeLimitMs ?? this.#taskTimeoutMs, MAX_TIMER_MS);
    for (let index = first; index <= last; index++) {
      const name = `task ${id}.${index}`;
      const body = Buffer.from(entries?.[index - first] ?? recipe.body ?? EMPTY);
      const started = now();
      const timer = setTimeout(() => {
        const why = Buffer.from("no answer came before the time limit");
        this.abandonCall(name, ({ done }) => done(why, "LABORO_DEADLINE"));
      }, limitMs);
      this.#tasks.set(name, { job: id, index, attempt, timer });
      this.core.workerStarted(this.profile.id, [{ job: id, index, attempt }]);
      const done: WorkerCall["done"] = (answer, error) => this.#ended(name, started, answer, error);
      this.sendCall({ name, service: recipe.service, body, attempt, done });
    }
  }

  /** Assigned tasks are sent at once, so none can be retracted. */
  retract(): void {}

  /** The worker may continue with a cancelled task. Its answer is ignored. */
  cancel(ranges: readonly AttemptRange[]): void {
    for (const [name, task] of this.#tasks) {
      if (!isInRanges(task, ranges)) continue;
      this.abandonCall(name, () => {
        this.#removeTask(name);
        this.core.workerRetracted(this.profile.id, [rangeOf(task)]);
      });
    }
  }

  drain(): void {}

  protected clearTasks(): void {
    for (const name of [...this.#tasks.keys()]) this.#removeTask(name);
  }

  #ended(name: string, started: number, answer: Uint8Array, error: ErrorCode | undefined): void {
    const task = this.#removeTask(name);
    if (task === undefined) return;
    const { job, index, attempt } = task;
    const { id } = this.profile;
    const end = { job, index, attempt, started, ended: now() };
    if (error !== undefined) {
      const why = Buffer.from(answer).toString() || error;
      const timedOut = error === "LABORO_DEADLINE" ? { timedOut: true } : {};
      this.core.workerDone(id, [{ ...end, code: 1, error: why, outputBytes: 0, ...timedOut }], () => {});
      return;
    }
    for (let offset = 0; offset < answer.length; offset += OUTPUT_CHUNK) {
      const bytes = answer.subarray(offset, offset + OUTPUT_CHUNK);
      this.core.workerOutput(id, [{ job, index, attempt, stream: "stdout", offset, bytes }], () => {});
    }
    this.core.workerDone(id, [{ ...end, code: 0, outputBytes: answer.length }], () => {});
  }

  #removeTask(name: string): RunningTask | undefined {
    const task = this.#tasks.get(name);
    this.#tasks.delete(name);
    clearTimeout(task?.timer);
    return task;
  }
}

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
