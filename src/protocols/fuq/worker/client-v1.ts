/**
 * The client side of a fuq v1 connection, without its socket. Its states have the names of the specification:
 *
 *   CL_INIT0    waits for the server's OK
 *   CL_INIT1    has sent OK(nproc), and waits for the reply
 *   CL_LOOP0    waits for messages
 *   CL_UPDATE1  has sent an UPDATE, and waits for the OK
 *   CL_EXIT0    all tasks have ended, and no more will come
 *   CL_EXIT1    STOP(at once) was received, or the connection was closed
 *
 * There is no resume: when the connection breaks, the server assigns the tasks to other clients, so they are killed
 * here.
 */
import { asLaboroError } from "../../../base/errors.js";
import { decodeMessageV1, encodeMessageV1 } from "../codec.js";
import { ERRORS, errorName, type MessageV1, STOP_AT_ONCE, type Task, type Update } from "../messages.js";
import type { ProtocolSession, ProtocolSessionEvents } from "./persistent-transport.js";
import type { RunningTasks } from "./running-tasks.js";

interface ClientV1Options {
  readonly tasks: RunningTasks;
  readonly onPeerError: (why: string) => void;
  readonly events: ProtocolSessionEvents;
}

export class ClientV1 implements ProtocolSession {
  readonly #options: ClientV1Options;
  #state: "CL_INIT0" | "CL_INIT1" | "CL_LOOP0" | "CL_UPDATE1" | "CL_EXIT0" | "CL_EXIT1" = "CL_INIT0";
  #sentUpdate: Update | undefined;

  constructor(options: ClientV1Options) {
    this.#options = options;
  }

  /** The server speaks first. */
  start(): void {}

  get #over(): boolean {
    return this.#state === "CL_EXIT0" || this.#state === "CL_EXIT1";
  }

  onMessage(bytes: Buffer): void {
    if (this.#over) return;
    try {
      const message = decodeMessageV1(bytes);
      if (message.type === "?") this.#options.events.onBroken(message.why);
      else this.#receive(message);
    } catch (cause) {
      this.#options.events.onBroken(asLaboroError(cause).message);
    }
  }

  #receive(message: MessageV1): void {
    const { onPeerError, events } = this.#options;
    if (message.type === "OK") this.#onOk();
    else if (message.type === "JOB") this.#onJob(message.task);
    else if (message.type === "STOP") this.#onStop(message.count);
    else if (message.type === "ERROR") onPeerError(`the server sent ERROR(${errorName(message.code)})`);
    else events.onBroken("UPDATE is not for this side");
  }

  #onOk(): void {
    const { tasks, events } = this.#options;
    if (this.#state === "CL_INIT0") {
      this.#state = "CL_INIT1";
      this.#send({ type: "OK", nproc: tasks.nproc });
      return;
    }
    if (this.#state === "CL_LOOP0") return;
    const joins = this.#state === "CL_INIT1";
    this.#state = "CL_LOOP0";
    if (joins) events.onJoined();
    if (this.#sentUpdate !== undefined) tasks.acknowledged(this.#sentUpdate);
    this.#sentUpdate = undefined;
    this.sendUpdates();
    this.finishIfDone();
  }

  #onJob(task: Task): void {
    const joined = this.#state === "CL_LOOP0" || this.#state === "CL_UPDATE1";
    // The specification compares with >, which would never use the last slot.
    if (!joined || !this.#options.tasks.start([task])) this.#send({ type: "ERROR", code: ERRORS.cannot_run_job });
  }

  #onStop(count: number): void {
    const { tasks, events } = this.#options;
    tasks.stop(count);
    if (count !== STOP_AT_ONCE) this.finishIfDone();
    else {
      this.#state = "CL_EXIT1";
      events.onFinished();
    }
  }

  /** One at a time: an OK does not say which UPDATE it answers. */
  sendUpdates(): void {
    const [update] = this.#options.tasks.updates;
    if (this.#state !== "CL_LOOP0" || update === undefined) return;
    this.#sentUpdate = update;
    this.#state = "CL_UPDATE1";
    this.#send({ type: "UPDATE", update });
  }

  finishIfDone(): void {
    if (this.#state !== "CL_LOOP0" || !this.#options.tasks.finished) return;
    this.#state = "CL_EXIT0";
    this.#options.events.onFinished();
  }

  close(): void {
    if (!this.#over) this.#state = "CL_EXIT1";
    this.#options.tasks.dropAll();
  }

  #send(message: MessageV1): void {
    this.#options.events.send(encodeMessageV1(message));
  }
}
