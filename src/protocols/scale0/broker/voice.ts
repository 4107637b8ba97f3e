/** One peer at a door: what is said to it, put down for who looks; and how often it has said what nobody understands. */
import type { Conversation } from "../../../base/conversations.js";
import type { Peer, Router } from "../../zeromq/index.js";
import { CODES, type Code, type Command, type Parameters } from "../commands.js";
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

/** Text where it is some that a person can read, and hexadecimal otherwise. */
export function shownIdentity(identity: Buffer): string {
  const text = identity.toString();
  const plain =
    /^[\p{L}\p{N}\p{P}\p{S} ]+$/u.test(text) && Buffer.from(text).equals(identity) && !text.startsWith("0x");
  return plain ? text : `0x${identity.toString("hex")}`;
}

const LONGEST_SHOWN = 200;

function shownBody(body: readonly Uint8Array[]): Record<string, unknown> {
  if (body.length === 0) return {};
  return {
    body: body.map((frame) => {
      const bytes = Buffer.from(frame.subarray(0, LONGEST_SHOWN));
      const text = bytes.toString();
      const cut = frame.length > LONGEST_SHOWN ? "…" : "";
      return (/^[\p{L}\p{N}\p{P}\p{S}\s]*$/u.test(text) ? text : `0x${bytes.toString("hex")}`) + cut;
    }),
  };
}

const shortened = ([name, value]: readonly [string, unknown]): readonly [string, unknown] => [
  name,
  typeof value === "string" && value.length > LONGEST_SHOWN ? `${value.slice(0, LONGEST_SHOWN)}…` : value,
];

export const shown = ({ command, parameters, body }: Message): { name: string; fields: Record<string, unknown> } => ({
  name: command,
  fields: { ...Object.fromEntries(Object.entries(parameters).map(shortened)), ...shownBody(body) },
});

export function shownHeard(heard: Heard): { name: string; fields: Record<string, unknown> } {
  if (heard.kind === "message") return shown(heard);
  if (heard.kind === "prototype") return { name: heard.word, fields: { value: printable(heard.value) } };
  return heard.kind === "unknown"
    ? { name: heard.command, fields: { unknown: true } }
    : { name: "?", fields: { malformed: heard.why } };
}
