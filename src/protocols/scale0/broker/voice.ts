/** One peer at a door: what is said to it, put down for who looks; and how often it has said what nobody understands. */
import type { Conversation } from "../../../base/conversations.js";
import type { Peer, Router } from "../../zeromq/index.js";
import { CODES, type Code, type Command, type Parameters } from "../commands.js";
import { shown, shownHeard, shownIdentity } from "../describe.js";
import { DELIMITER, type Envelope, type Heard, type Message, printable, writeFrames } from "../frames.js";
import { Turns } from "./turns.js";

/** Things not understood, one after the other, and a peer is answered no more. */
const MOST_FAULTS = 100;

export class Voice {
  readonly peer: Peer;
  readonly name: string;
  /** As it came with the last thing that was said, and as it goes with what is not an answer to something else. */
  #envelope: Envelope;
  #faults = 0;
  readonly #router: Router;
  readonly #conversation: Conversation;
  #turns: Turns | undefined;

  constructor(peer: Peer, router: Router, conversation: Conversation) {
    this.peer = peer;
    this.name = shownIdentity(peer.identity);
    this.#envelope = peer.socketType === "REQ" ? DELIMITER : [];
    this.#router = router;
    this.#conversation = conversation;
    conversation.named(this.name);
  }

  /** It speaks through a REQ socket, which takes one answer for each thing it says. */
  get takesOne(): boolean {
    return this.#envelope.length > 0;
  }

  /** False where it is not there to hear it. */
  say(command: Command, parameters: Parameters, body: readonly Uint8Array[] = [], envelope = this.#envelope): boolean {
    const message = { command, parameters, body };
    return this.#turns === undefined ? this.#send(message, envelope) : this.#turns.say(message);
  }

  #send(message: Message, envelope: Envelope): boolean {
    this.#conversation.said(() => shown(message));
    return this.#router.send(this.peer.key, writeFrames(message, envelope));
  }

  /** Of a worker with a REQ socket, that hears nothing but answers. */
  takeTurns(): void {
    this.#turns ??= new Turns((message) => this.#send(message, this.#envelope));
  }

  /** It is to hear something for what it said, and if nobody has said anything, this. */
  settle(command: Command, parameters: () => Parameters): void {
    this.#turns?.settle(() => ({ command, parameters: parameters(), body: [] }));
  }

  /** To a worker of the prototype, whose messages are a word and one value. */
  sayWord(word: string, value: string): void {
    this.#conversation.said(() => ({ name: word, fields: { value: printable(value) } }));
    this.#router.send(this.peer.key, [Buffer.from(word), Buffer.from(value)]);
  }

  /** DISCONNECTERROR. With a `message_id` among `more` it is about that request and no other. */
  refuse(code: Code, why?: string, more: Parameters = {}, envelope = this.#envelope): void {
    const message = why === undefined ? CODES[code] : `${CODES[code]}: ${why}`;
    this.say("DISCONNECTERROR", { code, message, ...more }, [], envelope);
  }

  heard(heard: Heard): void {
    this.#conversation.heard(() => shownHeard(heard));
    if (heard.kind !== "prototype") this.#envelope = heard.envelope;
    this.#turns?.heard();
  }

  /** It said something that cannot be understood: it is told so, a hundred times. */
  fault(code: Code, why: string): void {
    this.#faults++;
    if (this.#faults < MOST_FAULTS) this.refuse(code, why);
    else if (this.#faults === MOST_FAULTS) this.refuse(444, "too much of what it says cannot be understood");
  }

  understood(): void {
    if (!this.ignored) this.#faults = 0;
  }

  /** It was told that it gets no more answers. */
  get ignored(): boolean {
    return this.#faults >= MOST_FAULTS;
  }

  end(): void {
    this.#turns?.end();
    this.#conversation.end();
  }
}
