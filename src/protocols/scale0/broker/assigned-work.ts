/**
 * The work that a worker was given: requests of clients, and tasks that are calls. All of it is in the worker's part of the wait queue
 * until it is answered. What nobody waits for any more stays there, because the worker is still busy with it and cannot be stopped.
 */
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import { CallTasks, type TaskCall } from "../../../broker/sessions/call-tasks.js";
import type { AttemptRange } from "../../../dispatch/index.js";
import type { RequestId, WorkerId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import { DEFAULT_TIMEOUT, type Parameters, readWorkIdentifier, type WorkCommand } from "../commands.js";
import { joined, type Message } from "../frames.js";
import { ClientRequest, WorkerReply } from "./context.js";

/** Of a task without a time limit: heartbeats show that its worker is there. */
const NO_LIMIT_MS = 2 ** 31 - 1;

/** A request, or a task that is one. */
interface WorkItem {
  /** The number of the request, or the name of the task. */
  readonly id: RequestId | string;
  /** `error` is the worker's; undefined for a good answer. */
  readonly answer: (body: readonly Uint8Array[], error: unknown) => void;
  /** How long its asker waits. */
  readonly timeoutMs: number;
  /** Nobody waits for it since then. */
  abandonedSince?: number;
}

export interface AssignedWorkOptions {
  readonly core: Core;
  readonly worker: WorkerId;
  /** Sends WORKREQUEST or TASK; `command` is the client's. */
  readonly send: (command: WorkCommand | undefined, parameters: Parameters, body: readonly Uint8Array[]) => void;
  /** A slot may be free. Called before anybody hears of it, so that the slot is not used before the worker has PINGed. */
  readonly onReleased: () => void;
}

export class AssignedWork {
  readonly #options: AssignedWorkOptions;
  readonly #tasks: CallTasks;
  /** By the identifier that the worker gives back. */
  readonly #waitQueue = new Map<string, WorkItem>();

  constructor(options: AssignedWorkOptions) {
    this.#options = options;
    this.#tasks = new CallTasks(options.core, options.worker, NO_LIMIT_MS);
  }

  /** How many somebody waits for. */
  get awaited(): number {
    let count = 0;
    for (const { abandonedSince } of this.#waitQueue.values()) if (abandonedSince === undefined) count++;
    return count;
  }

  /**
   * All that the worker is busy with. A worker that goes on and on without an answer has none: it gets its slot back after as long again
   * as the asker waited.
   */
  busySlots(): number {
    const time = now();
    for (const [identifier, { timeoutMs, abandonedSince }] of this.#waitQueue) {
      if (abandonedSince !== undefined && time - abandonedSince > timeoutMs) this.#waitQueue.delete(identifier);
    }
    return this.#waitQueue.size;
  }

  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment: unknown): void {
    const { core, worker } = this.#options;
    const clientRequest = attachment instanceof ClientRequest ? attachment : undefined;
    const [messageId = ""] = Object.values(clientRequest?.messageId ?? {});
    const identifier = `${clientRequest?.client ?? "laboro"}/${messageId}/${request}`;
    const answer = (frames: readonly Uint8Array[], error: unknown): void => {
      const failed = error === undefined ? undefined : "LABORO_SERVICE_FAILED";
      core.requests.replied(worker, request, joined(frames), failed, new WorkerReply(frames, error));
    };
    this.#waitQueue.set(identifier, { id: request, answer, timeoutMs });
    const parameters = { ...clientRequest?.parameters, service };
    this.#send(identifier, clientRequest?.workCommand, parameters, clientRequest?.body ?? [body]);
  }

  /** Nobody waits for it; the protocol has no message for that, and the worker stays busy with it. */
  cancelCall(request: RequestId): void {
    this.#abandon(request)?.answer([], undefined);
  }

  /** Tasks that are calls: they are requests for which nobody but the store waits. */
  assign(job: Job, tasks: AttemptRange, entries: Entries | undefined): void {
    const send = ({ name, service, body, done }: TaskCall): void => {
      const answer = (frames: readonly Uint8Array[], error: unknown): void =>
        done(joined(frames), error === undefined || error === "LABORO_DEADLINE" ? error : "LABORO_SERVICE_FAILED");
      const identifier = `laboro/${name}/${tasks.attempt}`;
      this.#waitQueue.set(identifier, { id: name, answer, timeoutMs: DEFAULT_TIMEOUT });
      this.#send(identifier, undefined, { service }, [body]);
    };
    const expired = (name: string): void =>
      this.#abandon(name)?.answer([Buffer.from("no answer in time")], "LABORO_DEADLINE");
    this.#tasks.begin(job, tasks, entries, send, expired);
  }

  cancel(tasks: readonly AttemptRange[]): void {
    for (const name of this.#tasks.runningIn(tasks)) {
      this.#abandon(name);
      this.#tasks.returnTask(name);
    }
  }

  /** WORKREPLY or TASKREPLY. One that is not waited for is dropped. */
  reply({ parameters, body }: Message): void {
    const identifier = String(Object.values(readWorkIdentifier(parameters))[0]);
    const work = this.#waitQueue.get(identifier);
    this.#waitQueue.delete(identifier);
    this.#options.onReleased();
    if (work?.abandonedSince === undefined) work?.answer(body, parameters.error ?? undefined);
  }

  clear(): void {
    this.#waitQueue.clear();
    this.#tasks.clear();
  }

  /** What it was, if somebody waited for it. */
  #abandon(id: WorkItem["id"]): WorkItem | undefined {
    const awaited = [...this.#waitQueue.values()].find((one) => one.id === id && one.abandonedSince === undefined);
    if (awaited !== undefined) awaited.abandonedSince = now();
    this.#options.onReleased();
    return awaited;
  }

  #send(identifier: string, command: WorkCommand | undefined, more: Parameters, body: readonly Uint8Array[]): void {
    // In both spellings of the text.
    const named = { work_request_identifier: identifier, work_request_indentifier: identifier };
    this.#options.send(command, { ...more, ...named }, body);
  }
}
