/** The work that a worker was given: requests of clients, and tasks that are calls. All of it is in its wait queue until it is answered. */
import { now } from "../../../base/clock.js";
import type { Core } from "../../../broker/core.js";
import { CallTasks, type TaskCall } from "../../../broker/sessions/call-tasks.js";
import type { AttemptRange } from "../../../dispatch/index.js";
import type { RequestId, WorkerId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import { DEFAULT_TIMEOUT, type Parameters, readWorkIdentifier, type WorkCommand } from "../commands.js";
import { joined, type Message } from "../frames.js";
import { ClientRequest, WorkerReply } from "./context.js";
import { WaitQueue } from "./wait-queue.js";

/** Of a task without a time limit: heartbeats show that its worker is there. */
const NO_LIMIT_MS = 2 ** 31 - 1;

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
  readonly #waitQueue = new WaitQueue();

  constructor(options: AssignedWorkOptions) {
    this.#options = options;
    this.#tasks = new CallTasks(options.core, options.worker, NO_LIMIT_MS);
  }

  /** How many somebody waits for. */
  get awaited(): number {
    return this.#waitQueue.awaited;
  }

  /** All that the worker is busy with. */
  busySlots(): number {
    this.#waitQueue.removeAbandoned(now());
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
    this.#waitQueue.add(identifier, { id: request, answer, timeoutMs });
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
      this.#waitQueue.add(identifier, { id: name, answer, timeoutMs: DEFAULT_TIMEOUT });
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
    const [identifier] = Object.values(readWorkIdentifier(parameters));
    const work = this.#waitQueue.take(String(identifier));
    this.#options.onReleased();
    work?.answer(body, parameters.error ?? undefined);
  }

  clear(): void {
    this.#waitQueue.clear();
    this.#tasks.clear();
  }

  #abandon(id: RequestId | string) {
    const work = this.#waitQueue.abandon(id, now());
    this.#options.onReleased();
    return work;
  }

  #send(identifier: string, command: WorkCommand | undefined, more: Parameters, body: readonly Uint8Array[]): void {
    // In both spellings of the text.
    const named = { work_request_identifier: identifier, work_request_indentifier: identifier };
    this.#options.send(command, { ...more, ...named }, body);
  }
}
