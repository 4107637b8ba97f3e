/**
 * The manager's side of one connection, in the states of the specification:
 *
 *   1    Accept        hello: after SALUTON, VERSIO is sent. version: after KOMPRENAS, ALIGI. group: JES is awaited
 *   2    Wait          PETO, REZULTO or FINO ANKAU may come
 *   3    SendJob       choosing: a PETO is open until `sendJob` or `noJob` is called. announced: LABORO was sent; after
 *                      PRETA the script is sent, and back to Wait
 *   3-2  ClientOnHold  ATENDI or ELIRI is sent, and at once back to Wait
 *   4    ProcessJob    judging: a REZULTO waits for `accept`. receiving: PRETA was sent, the output is counted.
 *                      recording: after `recorded` RICEVIS is sent, and back to Wait or WaitClose
 *   5    WaitClose     FINO was sent; REZULTO or FINO ANKAU may come, and a PETO gets FINO again
 *
 * FINO ANKAU may come in any state after JES. `closed` is not a state of the specification: the runner has left, or it
 * sent something wrong. Pure: bytes, quiet and decisions go in, messages and callbacks come out; no socket, no clock.
 */
import {
  type Closed,
  encode,
  type FromManager,
  type FromRunner,
  MAX_MESSAGE,
  type NoJobReply,
  PROTOCOL_VERSION,
  type ReadCallbacks,
  StateMachine,
} from "../messages.js";

type ServerState =
  | { readonly name: "Accept"; readonly step: "hello" | "version" | "group" }
  | { readonly name: "Wait" }
  | { readonly name: "SendJob"; readonly step: "choosing" }
  | { readonly name: "SendJob"; readonly step: "announced"; readonly content: Uint8Array }
  | ProcessJob
  | { readonly name: "WaitClose" };

interface ProcessJob {
  readonly name: "ProcessJob";
  readonly step: "judging" | "receiving" | "recording";
  /** Bytes of the output that have not come yet. */
  readonly bytesLeft: number;
  readonly returnTo: "Wait" | "WaitClose";
}

export type AnnouncedResult = Omit<Extract<FromRunner, { type: "REZULTO" }>, "type">;

export interface ServerCallbacks extends ReadCallbacks<FromRunner> {
  write(bytes: Uint8Array): void;
  sent(message: FromManager, bytes: number): void;
  /** JES was received. */
  joined(host: string): void;
  /** PETO was received; call `sendJob` or `noJob`, now or later. */
  jobRequested(): void;
  scriptSent(): void;
  /** REZULTO was received; call `accept` or `drop`. */
  resultAnnounced(result: AnnouncedResult): void;
  output(bytes: Buffer): void;
  /** The output is complete; call `recorded` when it is stored. */
  outputEnded(): void;
  /** FINO ANKAU was received. */
  runnerLeft(): void;
}

export class ServerStateMachine extends StateMachine<ServerState, FromRunner> {
  readonly #group: string;
  readonly #callbacks: ServerCallbacks;
  #host = "";

  constructor(group: string, callbacks: ServerCallbacks) {
    super({ name: "Accept", step: "hello" }, callbacks, "it");
    this.#group = group;
    this.#callbacks = callbacks;
  }

  /** In the middle of an exchange: its next bytes should come soon. */
  get awaitsBytes(): boolean {
    const { name } = this.current;
    if (this.reader.length > 0) return true;
    if (name === "SendJob") return this.current.step === "announced";
    return name === "ProcessJob" && this.current.step === "receiving";
  }

  // Answers to an open PETO

  sendJob(name: string, kind: string, content: Uint8Array): void {
    if (!this.#hasOpenPeto()) return;
    this.current = { name: "SendJob", step: "announced", content };
    this.#send({ type: "LABORO", name, kind, size: content.length });
    this.read();
  }

  noJob(answer: NoJobReply): void {
    if (!this.#hasOpenPeto()) return;
    this.current = { name: answer === "FINO" ? "WaitClose" : "Wait" };
    this.#send({ type: answer });
    this.read();
  }

  // Answers to a REZULTO

  accept(): void {
    const state = this.current;
    if (state.name !== "ProcessJob" || state.step !== "judging") throw new Error(`no result waits in ${state.name}`);
    this.current = { ...state, step: "receiving" };
    this.#send({ type: "PRETA" });
    this.read();
  }

  recorded(): void {
    const state = this.current;
    if (state.name === "closed") return;
    if (state.name !== "ProcessJob" || state.step !== "recording")
      throw new Error(`nothing is recorded in ${state.name}`);
    this.current = { name: state.returnTo };
    this.#send({ type: "RICEVIS" });
    this.read();
  }

  /** The connection is closed. */
  drop(): void {
    this.current = { name: "closed" };
  }

  /** False if the connection is closed: the session may not know it yet. */
  #hasOpenPeto(): boolean {
    const state = this.current;
    if (state.name === "closed") return false;
    if (state.name !== "SendJob" || state.step !== "choosing") throw new Error(`no PETO is open in ${state.name}`);
    return true;
  }

  #send(message: FromManager): void {
    const bytes = encode(message);
    this.#callbacks.sent(message, bytes.length);
    this.#callbacks.write(bytes);
  }

  protected step(state: ServerState | Closed): void {
    if (state.name === "Accept") this.#accepting(state.step);
    else if (state.name === "Wait" || state.name === "WaitClose") this.#waiting(state.name);
    else if (state.name === "SendJob") state.step === "choosing" ? this.#choosing() : this.#announced(state.content);
    else if (state.name === "ProcessJob") this.#processing(state);
  }

  #accepting(step: "hello" | "version" | "group"): void {
    if (step === "hello") {
      const hello = this.take(["SALUTON"]);
      if (hello === undefined) return;
      this.#host = hello.host;
      this.current = { name: "Accept", step: "version" };
      this.#send({ type: "VERSIO", version: PROTOCOL_VERSION });
    } else if (step === "version") {
      if (this.take(["KOMPRENAS"]) === undefined) return;
      this.current = { name: "Accept", step: "group" };
      this.#send({ type: "ALIGI", group: this.#group });
    } else {
      if (this.take(["JES"]) === undefined) return;
      this.current = { name: "Wait" };
      this.#callbacks.joined(this.#host);
    }
  }

  #waiting(returnTo: ProcessJob["returnTo"]): void {
    const message = this.take(["PETO", "REZULTO", "FINO ANKAU"]);
    if (message === undefined) return;
    if (message.type === "FINO ANKAU") {
      this.#leave();
    } else if (message.type === "REZULTO") {
      const { name, status, size } = message;
      this.current = { name: "ProcessJob", step: "judging", bytesLeft: size, returnTo };
      this.#callbacks.resultAnnounced({ name, status, size });
    } else if (returnTo === "WaitClose") {
      this.#send({ type: "FINO" });
      this.current = { name: "WaitClose" };
    } else {
      this.current = { name: "SendJob", step: "choosing" };
      this.#callbacks.jobRequested();
    }
  }

  /** The runner may leave without the answer to its PETO. */
  #choosing(): void {
    if (this.take(["FINO ANKAU"]) !== undefined) this.#leave();
  }

  #announced(content: Uint8Array): void {
    const message = this.take(["PRETA", "FINO ANKAU"]);
    if (message === undefined) return;
    if (message.type === "FINO ANKAU") {
      this.#leave();
      return;
    }
    this.current = { name: "Wait" };
    if (content.length > 0) this.#callbacks.write(content);
    this.#callbacks.scriptSent();
  }

  #processing(state: ProcessJob): void {
    if (state.step !== "receiving") {
      if (this.reader.length > MAX_MESSAGE) this.fail("it sent more while its result is being recorded");
      return;
    }
    const bytes = this.reader.takeData(state.bytesLeft);
    if (bytes.length > 0) this.#callbacks.output(bytes);
    const bytesLeft = state.bytesLeft - bytes.length;
    if (this.current.name === "closed" || (bytes.length === 0 && bytesLeft > 0)) return;
    this.current = { ...state, step: bytesLeft === 0 ? "recording" : "receiving", bytesLeft };
    if (bytesLeft === 0) this.#callbacks.outputEnded();
  }

  #leave(): void {
    this.current = { name: "closed" };
    this.#callbacks.runnerLeft();
  }
}
