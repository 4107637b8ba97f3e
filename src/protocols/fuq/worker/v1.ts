/**
 * One connection of a client to a server of fuq v1, without its socket. The states by the text's table:
 *
 *   CL_INIT0    waits for the server's OK
 *   CL_INIT1    has said OK(nproc), and waits for the answer
 *   CL_LOOP0    waits for what comes
 *   CL_UPDATE1  has sent an UPDATE, and waits for the OK
 *   CL_EXIT0    all is done, and nothing will come
 *   CL_EXIT1    was told to end at once
 *
 * Nothing is numbered and nothing can be resumed: what a connection that broke leaves here is another's by then, and is ended.
 */
import { asLaboroError } from "../../../base/errors.js";
import { decodeMessageV1, encodeMessageV1, type MessageV1 } from "../codec-v1.js";
import { ERRORS, errorName, STOP_AT_ONCE, type Task, type Update } from "../messages.js";
import type { Tasks } from "./tasks.js";
import type { Speaker, SpeakerEvents } from "./way.js";

export interface ClientV1Parts {
  readonly tasks: Tasks;
  /** The server has said something that has no place here. */
  readonly complain: (why: string) => void;
  readonly events: SpeakerEvents;
}

export class ClientV1 implements Speaker {
  readonly #parts: ClientV1Parts;
  #state: "CL_INIT0" | "CL_INIT1" | "CL_LOOP0" | "CL_UPDATE1" | "CL_EXIT0" | "CL_EXIT1" = "CL_INIT0";
  #told: Update | undefined;

  constructor(parts: ClientV1Parts) {
    this.#parts = parts;
  }

  /** The server speaks first. */
  begin(): void {}

  received(bytes: Buffer): void {
    if (this.#state === "CL_EXIT0" || this.#state === "CL_EXIT1") return;
    try {
      const message = decodeMessageV1(bytes);
      if (message.type === "?") this.#parts.events.onBroken(message.why);
      else this.#receive(message);
    } catch (cause) {
      this.#parts.events.onBroken(asLaboroError(cause).message);
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
        this.#parts.complain(`ERROR(${errorName(message.code)})`);
        break;
      case "UPDATE":
        this.#parts.events.onBroken("UPDATE is not for this side");
        break;
    }
  }

  #onOk(): void {
    const { tasks, events } = this.#parts;
    if (this.#state === "CL_INIT0") {
      this.#state = "CL_INIT1";
      this.#send({ type: "OK", nproc: tasks.nproc });
    } else if (this.#state === "CL_INIT1") {
      this.#state = "CL_LOOP0";
      events.onJoined();
      this.tell();
      this.lookWhetherOver();
    } else if (this.#told !== undefined) {
      tasks.acknowledged(this.#told);
      this.#told = undefined;
      this.#state = "CL_LOOP0";
      this.tell();
      this.lookWhetherOver();
    }
  }

  #onJob(task: Task): void {
    const joined = this.#state === "CL_LOOP0" || this.#state === "CL_UPDATE1";
    // The text compares with >, which would leave the last processor unused for ever.
    if (!joined || !this.#parts.tasks.start([task])) this.#send({ type: "ERROR", code: ERRORS.cannot_run_job });
  }

  #onStop(count: number): void {
    const { tasks, events } = this.#parts;
    tasks.stop(count);
    if (count !== STOP_AT_ONCE) this.lookWhetherOver();
    else {
      this.#state = "CL_EXIT1";
      events.onOver();
    }
  }

  /** One after the other: an OK does not say what it is the answer to. */
  tell(): void {
    const [update] = this.#parts.tasks.updates;
    if (this.#state !== "CL_LOOP0" || update === undefined) return;
    this.#told = update;
    this.#state = "CL_UPDATE1";
    this.#send({ type: "UPDATE", update });
  }

  lookWhetherOver(): void {
    if (this.#state !== "CL_LOOP0" || !this.#parts.tasks.over) return;
    this.#state = "CL_EXIT0";
    this.#parts.events.onOver();
  }

  close(): void {
    const over = this.#state === "CL_EXIT0" || this.#state === "CL_EXIT1";
    this.#state = over ? this.#state : "CL_EXIT1";
    this.#parts.tasks.abandon();
  }

  #send(message: MessageV1): void {
    this.#parts.events.send(encodeMessageV1(message));
  }
}
