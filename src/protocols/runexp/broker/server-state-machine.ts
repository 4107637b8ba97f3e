/**
 * The manager's side of one connection, in the states of the protocol text:
 *
 *   1    Accept        hello: SALUTON is awaited, then VERSIO is sent. version: KOMPRENAS, then ALIGI. group: JES
 *   2    Wait          PETO, REZULTO or FINO ANKAU may come
 *   3    SendJob       choosing: a PETO is open, until `sendJob` or `noJob` is called. announced: LABORO was sent,
 *                      PRETA is awaited, then the script is sent, and back to Wait
 *   3-2  ClientOnHold  ATENDI or ELIRI is sent, and back to Wait; it lasts no time
 *   4    ProcessJob    judging: a REZULTO waits for `accept`. receiving: PRETA was sent, the output is counted. recording: it waits
 *                      for `recorded`, then RICEVIS is sent, and back to where it came from, Wait or WaitClose
 *   5    WaitClose     FINO was sent; REZULTO or FINO ANKAU may come, and a PETO gets FINO again
 *
 * FINO ANKAU is taken in any state after JES. `closed` is no state of the text: the runner has left, or what it sent was wrong.
 * Pure: bytes, quiet and decisions go in, messages and callbacks come out; no socket, no clock.
 */
import {
  encode,
  type FromManager,
  type FromRunner,
  MAX_MESSAGE,
  type NoJobReply,
  PROTOCOL_VERSION,
  type Status,
} from "../messages.js";
import { type Closed, type ReadCallbacks, StateMachine } from "../state-machine.js";

export type ServerState =
  | { readonly name: "Accept"; readonly step: "hello" | "version" | "group" }
  | { readonly name: "Wait" }
  | { readonly name: "SendJob"; readonly step: "choosing" }
  | { readonly name: "SendJob"; readonly step: "announced"; readonly content: Uint8Array }
  | { readonly name: "ProcessJob"; readonly step: "judging"; readonly size: number; readonly returnTo: ReturnState }
  | {
      readonly name: "ProcessJob";
      readonly step: "receiving";
      readonly bytesLeft: number;
      readonly returnTo: ReturnState;
    }
  | { readonly name: "ProcessJob"; readonly step: "recording"; readonly returnTo: ReturnState }
  | { readonly name: "WaitClose" };

type ReturnState = "Wait" | "WaitClose";

export interface AnnouncedResult {
  readonly name: string;
  readonly status: Status;
  readonly size: number;
}

/** What the machine calls: the socket, and the session that decides. */
export interface ServerCallbacks extends ReadCallbacks<FromRunner> {
  write(bytes: Uint8Array): void;
  sent(message: FromManager, bytes: number): void;
  /** JES has come. */
  joined(host: string): void;
  /** PETO has come; `sendJob` or `noJob` is to follow, at once or later. */
  jobRequested(): void;
  /** The script is on its way. */
  scriptSent(): void;
  /** REZULTO has come; `accept` is to follow, or `drop`. */
  resultAnnounced(result: AnnouncedResult): void;
  output(bytes: Buffer): void;
  /** All of the output was given; `recorded` is to follow. */
  outputEnded(): void;
  /** FINO ANKAU has come. */
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

  /** Its next bytes are to come soon: it is in the middle of an exchange. */
  get awaitsBytes(): boolean {
    const { name } = this.current;
    if (this.reader.length > 0) return true;
    if (name === "SendJob") return this.current.step === "announced";
    return name === "ProcessJob" && this.current.step === "receiving";
  }

  // What may be decided about an open PETO

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

  // What may be decided about a REZULTO

  accept(): void {
    const state = this.current;
    if (state.name !== "ProcessJob" || state.step !== "judging") throw new Error(`no result waits in ${state.name}`);
    this.current = { name: "ProcessJob", step: "receiving", bytesLeft: state.size, returnTo: state.returnTo };
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

  /** The connection is to be ended. */
  drop(): void {
    this.current = { name: "closed" };
  }

  /** False where the connection is to be ended: the session may not know it yet. */
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

  #waiting(returnTo: ReturnState): void {
    const message = this.take(["PETO", "REZULTO", "FINO ANKAU"]);
    if (message === undefined) return;
    if (message.type === "FINO ANKAU") {
      this.#leave();
    } else if (message.type === "REZULTO") {
      const { name, status, size } = message;
      this.current = { name: "ProcessJob", step: "judging", size, returnTo };
      this.#callbacks.resultAnnounced({ name, status, size });
    } else if (returnTo === "WaitClose") {
      this.#send({ type: "FINO" });
      this.current = { name: "WaitClose" };
    } else {
      this.current = { name: "SendJob", step: "choosing" };
      this.#callbacks.jobRequested();
    }
  }

  /** The runner waits for the answer to PETO; it may leave all the same. */
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

  #processing(state: Extract<ServerState, { name: "ProcessJob" }>): void {
    if (state.step === "receiving") this.#receiving(state.bytesLeft, state.returnTo);
    else if (this.reader.length > MAX_MESSAGE) this.fail("it sent more while its result is being recorded");
  }

  #receiving(left: number, returnTo: ReturnState): void {
    const bytes = this.reader.takeData(left);
    if (bytes.length > 0) this.#callbacks.output(bytes);
    if (this.current.name === "closed" || (bytes.length === 0 && left > 0)) return;
    if (bytes.length < left) {
      this.current = { name: "ProcessJob", step: "receiving", bytesLeft: left - bytes.length, returnTo };
      return;
    }
    this.current = { name: "ProcessJob", step: "recording", returnTo };
    this.#callbacks.outputEnded();
  }

  #leave(): void {
    this.current = { name: "closed" };
    this.#callbacks.runnerLeft();
  }
}
