/** One connected peer: sends messages to it, traces them, and counts messages that cannot be understood. */
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { Peer, Router } from "../../zeromq/index.js";
import { type Command, type DisconnectCode, disconnectText, type Parameters } from "../commands.js";
import { describeFrames, describeIdentity, describeMessage } from "../describe.js";
import { DELIMITER, type Envelope, type Message, printable, type ReceivedFrames, writeFrames } from "../frames.js";
import { ReqTurnQueue } from "./req-turn-queue.js";

/** After this many messages in a row that cannot be understood, a peer gets no more answers. */
const MAX_FAULTS = 100;

export class PeerSession {
  readonly peer: Peer;
  readonly name: string;
  /** Of its last message; used for messages that are not an answer to another one. */
  #envelope: Envelope;
  #faults = 0;
  readonly #router: Router;
  readonly #traced: TracedConnection;
  #turnQueue: ReqTurnQueue | undefined;

  constructor(peer: Peer, router: Router, traced: TracedConnection) {
    this.peer = peer;
    this.name = describeIdentity(peer.identity);
    this.#envelope = peer.socketType === "REQ" ? DELIMITER : [];
    this.#router = router;
    this.#traced = traced;
    traced.setPeer(this.name);
  }

  /** It has a REQ socket, which takes one answer for each message. */
  get usesReqSocket(): boolean {
    return this.#envelope.length > 0;
  }

  /** False where it cannot be sent. */
  send(command: Command, parameters: Parameters, body: readonly Uint8Array[] = [], envelope = this.#envelope): boolean {
    const message = { command, parameters, body };
    return this.#turnQueue === undefined ? this.#send(message, envelope) : this.#turnQueue.send(message);
  }

  #send(message: Message, envelope: Envelope): boolean {
    this.#traced.sent(() => describeMessage(message));
    return this.#router.send(this.peer.key, writeFrames(message, envelope));
  }

  /** For a worker with a REQ socket, which receives nothing but answers. */
  queueForReq(): void {
    this.#turnQueue ??= new ReqTurnQueue((message) => this.#send(message, this.#envelope));
  }

  /** Sends this as the answer to its last message, if nothing else was sent. */
  replyIfUnanswered(command: Command, parameters: () => Parameters): void {
    this.#turnQueue?.replyIfUnanswered(() => ({ command, parameters: parameters(), body: [] }));
  }

  /** To a worker of the prototype, whose messages are a word and one value. */
  sendWord(word: string, value: string): void {
    this.#traced.sent(() => ({ name: word, fields: { value: printable(value) } }));
    this.#router.send(this.peer.key, [Buffer.from(word), Buffer.from(value)]);
  }

  /** DISCONNECTERROR. With a `message_id` among `more` it is about that request and no other. */
  sendDisconnectError(code: DisconnectCode, why?: string, more: Parameters = {}, envelope = this.#envelope): void {
    const message = disconnectText(code, why);
    this.send("DISCONNECTERROR", { code, message, ...more }, [], envelope);
  }

  received(frames: ReceivedFrames): void {
    this.#traced.received(() => describeFrames(frames));
    if (frames.kind !== "prototype") this.#envelope = frames.envelope;
    this.#turnQueue?.received();
  }

  /** Its message cannot be understood: it gets an error, up to a hundred times. */
  sendFault(code: DisconnectCode, why: string): void {
    this.#faults++;
    if (this.#faults < MAX_FAULTS) this.sendDisconnectError(code, why);
    else if (this.#faults === MAX_FAULTS)
      this.sendDisconnectError(444, "too much of what it says cannot be understood");
  }

  resetFaults(): void {
    if (!this.ignored) this.#faults = 0;
  }

  /** It gets no more answers. */
  get ignored(): boolean {
    return this.#faults >= MAX_FAULTS;
  }

  end(): void {
    this.#turnQueue?.end();
    this.#traced.close();
  }
}
