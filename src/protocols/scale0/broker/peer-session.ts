/**
 * One connected peer: sends messages to it, traces them, and counts its faults. A worker with a REQ socket can receive
 * only one message for each message that it sends. Messages for such a worker are queued:
 *
 *   idle      it has got its answer: messages wait until it sends again
 *   waiting   it has sent a message. Queued messages are sent first, instead of PONG. A PONG alone is delayed for a
 *             moment, because a request right after it would have to wait for the next PING
 */
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { Peer } from "../../zeromq/index.js";
import { type BrokerUris, type Command, type DisconnectCode, disconnectText, type Parameters } from "../commands.js";
import {
  DELIMITER,
  describeFrames,
  describeIdentity,
  describeMessage,
  type Envelope,
  type Message,
  printable,
  type ReceivedFrames,
  writeFrames,
} from "../frames.js";

/** After this many faults in a row a peer gets no more answers. */
const MAX_FAULTS = 100;

export class PeerSession {
  readonly peer: Peer;
  readonly name: string;
  /** Of its last message; used for messages that answer no other. */
  #envelope: Envelope;
  #faults = 0;
  readonly #sendFrames: (key: string, frames: readonly Uint8Array[]) => boolean;
  readonly #onFault: (why: string) => void;
  readonly #traced: TracedConnection;
  #turnQueue: ReqTurnQueue | undefined;

  constructor(
    peer: Peer,
    sendFrames: (key: string, frames: readonly Uint8Array[]) => boolean,
    traced: TracedConnection,
    onFault: (why: string) => void,
  ) {
    this.peer = peer;
    this.name = describeIdentity(peer.identity);
    this.#envelope = peer.socketType === "REQ" ? DELIMITER : [];
    this.#sendFrames = sendFrames;
    this.#traced = traced;
    this.#onFault = onFault;
    traced.setPeer(this.name);
  }

  get usesReqSocket(): boolean {
    return this.#envelope.length > 0;
  }

  /** False if it cannot be sent. */
  send(command: Command, parameters: Parameters, body: readonly Uint8Array[] = [], envelope = this.#envelope): boolean {
    const message = { command, parameters, body };
    return this.#turnQueue === undefined ? this.#send(message, envelope) : this.#turnQueue.send(message);
  }

  #send(message: Message, envelope: Envelope): boolean {
    this.#traced.sent(() => describeMessage(message));
    return this.#sendFrames(this.peer.key, writeFrames(message, envelope));
  }

  /** For a worker with a REQ socket. */
  queueForReq(): void {
    this.#turnQueue ??= new ReqTurnQueue((message) => this.#send(message, this.#envelope));
  }

  /** Sends this to a REQ socket, if its last message has no answer yet. */
  replyIfUnanswered(command: Command, parameters: () => Parameters): void {
    this.#turnQueue?.replyIfUnanswered(() => ({ command, parameters: parameters(), body: [] }));
  }

  /** To a worker of the prototype. */
  sendWord(word: string, value: string): void {
    this.#traced.sent(() => ({ name: word, fields: { value: printable(value) } }));
    this.#sendFrames(this.peer.key, [Buffer.from(word), Buffer.from(value)]);
  }

  /** DISCONNECTERROR. With a `message_id` in `more` it is about that request only. */
  sendDisconnectError(code: DisconnectCode, why?: string, more: Parameters = {}, envelope = this.#envelope): void {
    this.send("DISCONNECTERROR", { code, message: disconnectText(code, why), ...more }, [], envelope);
  }

  received(frames: ReceivedFrames): void {
    this.#traced.received(() => describeFrames(frames));
    if (frames.kind !== "prototype") this.#envelope = frames.envelope;
    this.#turnQueue?.received();
  }

  /** CHANGEBROKER, the answer to NEEDBROKER. */
  sendBrokers(brokers: readonly BrokerUris[]): void {
    if (brokers.length > 0) this.send("CHANGEBROKER", { brokers });
    else this.sendDisconnectError(503, "this broker is to be taken down, and knows no other");
  }

  /** For a message that cannot be understood. */
  sendFault(code: 400 | 501, why: string): void {
    this.#onFault(disconnectText(code, why));
    this.#faults++;
    if (this.#faults < MAX_FAULTS) this.sendDisconnectError(code, why);
    else if (this.#faults === MAX_FAULTS)
      this.sendDisconnectError(444, "too many of its messages cannot be understood");
  }

  resetFaults(): void {
    if (!this.ignored) this.#faults = 0;
  }

  /** The peer gets no more answers. */
  get ignored(): boolean {
    return this.#faults >= MAX_FAULTS;
  }

  end(): void {
    this.#turnQueue?.end();
    this.#traced.close();
  }
}

/** Longer than a request needs to get here, shorter than a worker's timeout for its broker. */
const PONG_DELAY_MS = 1_000;
const MAX_QUEUED = 1_000;

class ReqTurnQueue {
  readonly #send: (message: Message) => boolean;
  #queued: Message[] = [];
  #state: "idle" | "waiting" = "idle";
  #delayedPong: { readonly pong: Message; readonly timer: NodeJS.Timeout } | undefined;
  /** The last message was CONFIG: the PONG after it ends the startup and is sent at once. */
  #starting = false;

  constructor(send: (message: Message) => boolean) {
    this.#send = send;
  }

  received(): void {
    this.end();
    this.#state = "waiting";
  }

  /** False if it cannot be sent, now or later. */
  send(message: Message): boolean {
    if (message.command === "PONG") return this.#pong(message);
    this.#dropSuperseded(message);
    // A queued message gives the reason; FORCENEGOTIATE is repeated anyway.
    const first = message.command === "FORCENEGOTIATE" && this.#state === "waiting" ? this.#queued.shift() : undefined;
    if (this.#state === "waiting") return this.#answer(first ?? message);
    if (this.#queued.length >= MAX_QUEUED) return false;
    this.#queued.push(message);
    return true;
  }

  /** Without an answer a REQ socket cannot send again. */
  replyIfUnanswered(answer: () => Message): void {
    if (this.#state === "waiting" && this.#delayedPong === undefined) this.#answer(this.#queued.shift() ?? answer());
  }

  end(): void {
    clearTimeout(this.#delayedPong?.timer);
    this.#delayedPong = undefined;
  }

  #pong(pong: Message): boolean {
    if (this.#state === "idle" || this.#delayedPong !== undefined) return true;
    const first = this.#queued.shift();
    if (first !== undefined || this.#starting) return this.#answer(first ?? pong);
    this.#delayedPong = { pong, timer: setTimeout(() => this.#answer(pong), PONG_DELAY_MS) };
    return true;
  }

  /** Removes queued messages that a new one replaces. Requests are only removed by DISCONNECTERROR. */
  #dropSuperseded({ command }: Message): void {
    if (command === "DISCONNECTERROR") this.#queued = [];
    else
      this.#queued = this.#queued.filter((one) => isRequest(one) || (command !== "CONFIG" && one.command !== command));
  }

  #answer(message: Message): boolean {
    this.end();
    this.#state = "idle";
    this.#starting = message.command === "CONFIG";
    return this.#send(message);
  }
}

const isRequest = ({ command }: Message): boolean => command === "WORKREQUEST" || command === "TASK";
