/**
 * One connection of a client to a server of fuq v1, without its socket. The states by the text's table:
 *
 *   CL_INIT0    waits for the server's OK
 *   CL_INIT1    has sent OK(nproc), and waits for the answer
 *   CL_LOOP0    waits for what comes
 *   CL_UPDATE1  has sent an UPDATE, and waits for the OK
 *   CL_EXIT0    all is done, and nothing will come
 *   CL_EXIT1    STOP(at once) came
 *
 * Nothing is numbered and nothing can be resumed: what a connection that broke leaves here is another's by then, and is ended.
 */
import { asLaboroError } from "../../../base/errors.js";
import { decodeMessageV1, encodeMessageV1, type MessageV1 } from "../codec-v1.js";
import { ERRORS, errorName, STOP_AT_ONCE, type Task, type Update } from "../messages.js";
import type { ForemanTasks } from "./foreman-tasks.js";
import type { ProtocolSession, ProtocolSessionEvents } from "./transport.js";

interface ClientV1Options {
  readonly tasks: ForemanTasks;
  /** The server has said something that has no place here. */
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

  onMessage(bytes: Buffer): void {
    if (this.#state === "CL_EXIT0" || this.#state === "CL_EXIT1") return;
    try {
      const message = decodeMessageV1(bytes);
      if (message.type === "?") this.#options.events.onBroken(message.why);
      else this.#receive(message);
    } catch (cause) {
      this.#options.events.onBroken(asLaboroError(cause).message);
    }
  }

  #receive(message: MessageV1): void {
    switch (message.type) {
      case "OK":
        this.#onOk();
        break;
      case "JOB":
        this.#onJob(message.task);
        break;
      case "STOP":
        this.#onStop(message.count);
        break;
      case "ERROR":
        this.#options.onPeerError(`ERROR(${errorName(message.code)})`);
        break;
      case "UPDATE":
        this.#options.events.onBroken("UPDATE is not for this side");
        break;
    }
  }

  #onOk(): void {
    const { tasks, events } = this.#options;
    if (this.#state === "CL_INIT0") {
      this.#state = "CL_INIT1";
      this.#send({ type: "OK", nproc: tasks.nproc });
    } else if (this.#state === "CL_INIT1") {
      this.#state = "CL_LOOP0";
      events.onJoined();
      this.sendUpdates();
      this.finishIfDone();
    } else if (this.#sentUpdate !== undefined) {
      tasks.acknowledged(this.#sentUpdate);
      this.#sentUpdate = undefined;
      this.#state = "CL_LOOP0";
      this.sendUpdates();
      this.finishIfDone();
    }
  }

  #onJob(task: Task): void {
    const joined = this.#state === "CL_LOOP0" || this.#state === "CL_UPDATE1";
    // The text compares with >, which would leave the last processor unused for ever.
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

  /** One after the other: an OK does not say what it is the answer to. */
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
    const over = this.#state === "CL_EXIT0" || this.#state === "CL_EXIT1";
    this.#state = over ? this.#state : "CL_EXIT1";
    this.#options.tasks.dropAll();
  }

  #send(message: MessageV1): void {
    this.#options.events.send(encodeMessageV1(message));
  }
}
