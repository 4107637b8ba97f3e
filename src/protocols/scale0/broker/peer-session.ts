/** One peer at a door: what is said to it, put down for who looks; and how often it has said what nobody understands. */
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { Peer, Router } from "../../zeromq/index.js";
import { DISCONNECT_CODES, type DisconnectCode, type Command, type Parameters } from "../commands.js";
import { shown, shownHeard, shownIdentity } from "../describe.js";
import { DELIMITER, type Envelope, type ReceivedFrames, type Message, printable, writeFrames } from "../frames.js";
import { ReqTurnQueue } from "./req-turn-queue.js";

/** Things not understood, one after the other, and a peer is answered no more. */
const MOST_FAULTS = 100;

export class PeerSession {
  readonly peer: Peer;
  readonly name: string;
  /** As it came with the last thing that was said, and as it goes with what is not an answer to something else. */
  #envelope: Envelope;
  #faults = 0;
  readonly #router: Router;
  readonly #traced: TracedConnection;
  #turnQueue: ReqTurnQueue | undefined;

  constructor(peer: Peer, router: Router, traced: TracedConnection) {
    this.peer = peer;
    this.name = shownIdentity(peer.identity);
    this.#envelope = peer.socketType === "REQ" ? DELIMITER : [];
    this.#router = router;
    this.#traced = traced;
    traced.setPeer(this.name);
  }

  /** It speaks through a REQ socket, which takes one answer for each thing it says. */
  get usesReqSocket(): boolean {
    return this.#envelope.length > 0;
  }

  /** False where it is not there to hear it. */
  send(command: Command, parameters: Parameters, body: readonly Uint8Array[] = [], envelope = this.#envelope): boolean {
    const message = { command, parameters, body };
    return this.#turnQueue === undefined ? this.#send(message, envelope) : this.#turnQueue.send(message);
  }

  #send(message: Message, envelope: Envelope): boolean {
    this.#traced.sent(() => shown(message));
    return this.#router.send(this.peer.key, writeFrames(message, envelope));
  }

  /** Of a worker with a REQ socket, that hears nothing but answers. */
  queueForReq(): void {
    this.#turnQueue ??= new ReqTurnQueue((message) => this.#send(message, this.#envelope));
  }

  /** It is to hear something for what it said, and if nobody has said anything, this. */
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
    const message = why === undefined ? DISCONNECT_CODES[code] : `${DISCONNECT_CODES[code]}: ${why}`;
    this.send("DISCONNECTERROR", { code, message, ...more }, [], envelope);
  }

  received(heard: ReceivedFrames): void {
    this.#traced.received(() => shownHeard(heard));
    if (heard.kind !== "prototype") this.#envelope = heard.envelope;
    this.#turnQueue?.received();
  }

  /** It said something that cannot be understood: it is told so, a hundred times. */
  sendFault(code: DisconnectCode, why: string): void {
    this.#faults++;
    if (this.#faults < MOST_FAULTS) this.sendDisconnectError(code, why);
    else if (this.#faults === MOST_FAULTS) this.sendDisconnectError(444, "too much of what it says cannot be understood");
  }

  resetFaults(): void {
    if (!this.ignored) this.#faults = 0;
  }

  /** It was told that it gets no more answers. */
  get ignored(): boolean {
    return this.#faults >= MOST_FAULTS;
  }

  end(): void {
    this.#turnQueue?.end();
    this.#traced.close();
  }
}
