/**
 * The runner's side of one connection. The workers of the specification are threads that share the connection under a
 * lock. These are the states of the thread that holds the lock:
 *
 *   1  Initialization  hello: SALUTON was sent, VERSIO is awaited. group: KOMPRENAS was sent; after ALIGI, JES is sent
 *   2  WorkerLoop      no thread holds the lock: `requestJob`, `deliver` or `leave` may be called
 *   3  RunJob          asked: PETO was sent, its answer is awaited. receiving: PRETA was sent, the script is counted
 *   4  SendOutcome     announced: REZULTO was sent, PRETA is awaited. sending: the output. sent: RICEVIS is awaited
 *   5  WaitClose       FINO ANKAU was sent
 *   6  ClientOnHold    ATENDI or ELIRI was received; the lock is free at once, threads.ts decides what follows
 *
 * `closed` is not a state of the specification: the manager sent something wrong. Pure: bytes, quiet and requests of
 * the threads go in, messages and callbacks come out.
 */
import {
  type Closed,
  displayName,
  encode,
  type FromManager,
  type FromRunner,
  type NoJobReply,
  PROTOCOL_VERSION,
  type ReadCallbacks,
  StateMachine,
  type Status,
} from "../messages.js";

type ClientState =
  | { readonly name: "Initialization"; readonly step: "hello" | "group" }
  | { readonly name: "WorkerLoop" }
  | { readonly name: "RunJob"; readonly step: "asked" }
  | { readonly name: "RunJob"; readonly step: "receiving"; readonly job: AnnouncedJob }
  | { readonly name: "SendOutcome"; readonly step: "announced" | "sending" | "sent" }
  | { readonly name: "WaitClose" };

interface AnnouncedJob {
  readonly name: string;
  readonly kind: string;
  /** The script so far, and the bytes that have not come yet. */
  readonly chunks: readonly Buffer[];
  readonly bytesLeft: number;
}

export interface Job {
  readonly name: string;
  /** `.sh` or `.m` */
  readonly kind: string;
  readonly content: Buffer;
}

export interface ClientCallbacks extends ReadCallbacks<FromManager> {
  /** One message. `alone`: the next must not arrive together with it. */
  write(bytes: Uint8Array, alone: boolean): void;
  sent(message: FromRunner): void;
  joined(): void;
  job(job: Job): void;
  noJob(answer: NoJobReply): void;
  /** The manager waits for the output; call `sendOutput`. */
  outputWanted(): void;
  delivered(): void;
  /** The manager has another version or group. */
  refused(reason: string): void;
}

const MAX_SCRIPT = 256 * 1024 * 1024;

export class ClientStateMachine extends StateMachine<ClientState, FromManager> {
  readonly #group: string;
  readonly #callbacks: ClientCallbacks;

  constructor(group: string, callbacks: ClientCallbacks) {
    super({ name: "Initialization", step: "hello" }, callbacks, "the manager");
    this.#group = group;
    this.#callbacks = callbacks;
  }

  sendHello(host: string): void {
    this.#send({ type: "SALUTON", host });
  }

  requestJob(): void {
    if (!this.#maySend("PETO")) return;
    this.current = { name: "RunJob", step: "asked" };
    this.#send({ type: "PETO" });
  }

  deliver(name: string, status: Status, size: number): void {
    if (!this.#maySend("REZULTO")) return;
    this.current = { name: "SendOutcome", step: "announced" };
    this.#send({ type: "REZULTO", name, status, size });
  }

  /** The output in any number of pieces, `last` with the last of them. */
  sendOutput(bytes: Uint8Array, last: boolean): void {
    if (bytes.length > 0) this.#callbacks.write(bytes, false);
    if (!last) return;
    this.current = { name: "SendOutcome", step: "sent" };
    this.read();
  }

  leave(): void {
    if (!this.#maySend("FINO ANKAU")) return;
    this.current = { name: "WaitClose" };
    this.#send({ type: "FINO ANKAU" });
  }

  /** False if the connection is closed: the threads may not know it yet. */
  #maySend(what: string): boolean {
    if (this.current.name === "closed") return false;
    if (this.current.name !== "WorkerLoop") throw new Error(`${what} cannot be sent in ${this.current.name}`);
    return true;
  }

  #send(message: FromRunner, alone = false): void {
    this.#callbacks.sent(message);
    this.#callbacks.write(encode(message), alone);
  }

  protected step(state: ClientState | Closed): void {
    if (state.name === "Initialization") state.step === "hello" ? this.#version() : this.#groupName();
    else if (state.name === "RunJob") state.step === "asked" ? this.#petoAnswered() : this.#receiving(state.job);
    else if (state.name === "SendOutcome") this.#sending(state.step);
    else if (state.name !== "closed" && this.reader.length > 0)
      this.fail("the manager sent something that was not requested");
  }

  #version(): void {
    const message = this.take(["VERSIO"]);
    if (message === undefined) return;
    if (message.version !== PROTOCOL_VERSION) {
      this.#refuse(`the manager speaks version ${message.version}, this runner ${PROTOCOL_VERSION}`);
      return;
    }
    this.current = { name: "Initialization", step: "group" };
    this.#send({ type: "KOMPRENAS" });
  }

  #groupName(): void {
    const message = this.take(["ALIGI"]);
    if (message === undefined) return;
    if (message.group !== this.#group) {
      this.#refuse(`the manager's group is ${message.group}, this runner's ${this.#group}`);
      return;
    }
    this.current = { name: "WorkerLoop" };
    this.#send({ type: "JES" }, true);
    this.#callbacks.joined();
  }

  #petoAnswered(): void {
    const message = this.take(["LABORO", "FINO", "ATENDI", "ELIRI"]);
    if (message === undefined) return;
    if (message.type !== "LABORO") {
      this.current = { name: "WorkerLoop" };
      this.#callbacks.noJob(message.type);
      return;
    }
    const { name, kind, size } = message;
    if (size > MAX_SCRIPT) {
      this.fail(`the script of ${displayName(name)} has ${size} bytes, ${MAX_SCRIPT} are allowed`);
      return;
    }
    this.current = { name: "RunJob", step: "receiving", job: { name, kind, chunks: [], bytesLeft: size } };
    this.#send({ type: "PRETA" }, size === 0);
  }

  #receiving({ name, kind, ...before }: AnnouncedJob): void {
    const piece = this.reader.takeData(before.bytesLeft);
    const bytesLeft = before.bytesLeft - piece.length;
    const chunks = [...before.chunks, piece];
    if (bytesLeft === 0) {
      this.current = { name: "WorkerLoop" };
      this.#callbacks.job({ name, kind, content: Buffer.concat(chunks) });
    } else if (piece.length > 0) {
      this.current = { name: "RunJob", step: "receiving", job: { name, kind, chunks, bytesLeft } };
    }
  }

  #sending(step: "announced" | "sending" | "sent"): void {
    if (step === "announced") {
      if (this.take(["PRETA"]) === undefined) return;
      this.current = { name: "SendOutcome", step: "sending" };
      this.#callbacks.outputWanted();
    } else if (step === "sent") {
      if (this.take(["RICEVIS"]) === undefined) return;
      this.current = { name: "WorkerLoop" };
      this.#callbacks.delivered();
    }
  }

  #refuse(reason: string): void {
    this.current = { name: "closed" };
    this.#callbacks.refused(reason);
  }
}
