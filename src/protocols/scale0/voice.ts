/** One peer at a door: what is said to it, put down for who looks; and how often it has said what nobody understands. */
import type { Conversation } from "../../broker/doors/conversations.js";
import type { Peer, Router } from "../zeromq/index.js";
import { CODES, type Code, type Command, type Parameters } from "./commands.js";
import { type Heard, type Message, printable, writeFrames } from "./frames.js";

/** Things not understood, one after the other, and a peer is answered no more. */
const MOST_FAULTS = 100;

export class Voice {
  readonly peer: Peer;
  readonly name: string;
  /** It speaks through a REQ socket, which takes one answer for each thing it says. */
  delimited: boolean;
  #faults = 0;
  readonly #router: Router;
  readonly #conversation: Conversation;

  constructor(peer: Peer, router: Router, conversation: Conversation) {
    this.peer = peer;
    this.name = shownIdentity(peer.identity);
    this.delimited = peer.socketType === "REQ";
    this.#router = router;
    this.#conversation = conversation;
    conversation.named(this.name);
  }

  /** False where it is not there to hear it. */
  say(command: Command, parameters: Parameters, body: readonly Uint8Array[] = [], delimited = this.delimited): boolean {
    const message = { command, parameters, body };
    this.#conversation.said(() => shown(message));
    return this.#router.send(this.peer.key, writeFrames(message, delimited));
  }

  /** DISCONNECTERROR. With a `message_id` among `more` it is about that request and no other. */
  refuse(code: Code, why?: string, more: Parameters = {}, delimited = this.delimited): void {
    const message = why === undefined ? CODES[code] : `${CODES[code]}: ${why}`;
    this.say("DISCONNECTERROR", { code, message, ...more }, [], delimited);
  }

  heard(heard: Heard): void {
    this.#conversation.heard(() => shownHeard(heard));
    if (heard.kind === "message") this.delimited = heard.delimited;
  }

  /** It said something that cannot be understood: it is told so, a hundred times. */
  fault(code: Code, why: string, delimited: boolean): void {
    this.#faults++;
    if (this.#faults < MOST_FAULTS) this.refuse(code, why, {}, delimited);
    else if (this.#faults === MOST_FAULTS)
      this.refuse(444, "too much of what it says cannot be understood", {}, delimited);
  }

  understood(): void {
    if (!this.ignored) this.#faults = 0;
  }

  /** It was told that it gets no more answers. */
  get ignored(): boolean {
    return this.#faults >= MOST_FAULTS;
  }

  end(): void {
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
