/**
 * What is said on a connection, for who asks to see it. Recording is off until somebody does, and costs a look at one flag until then;
 * it ends by itself when nobody has looked for a while. Of each conversation the last messages are kept.
 */
import { now } from "./clock.js";

export interface Message {
  /** By the protocol's own word: HELLO, PETO, TRACKEXEC. */
  readonly name: string;
  /** Its fields, as a person would read them: plain values, bytes as text or hex, long ones cut. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly bytes?: number;
}

export interface Recorded extends Message {
  readonly number: number;
  readonly at: number;
  /** From the peer's side, or from the broker's. */
  readonly from: "peer" | "broker";
}

const KEPT = 500;
/** Conversations that ended while somebody looked: their last words are the ones that matter. */
const ENDED_KEPT = 20;
/** Nobody has looked for so long: what is said is nobody's business any more. */
const FORGOTTEN_MS = 60_000;

/** One connection; for a door of datagrams, one peer. */
export class Conversation {
  readonly opened = now();
  peer: string;
  #over = false;
  #lookedAt: number | undefined;
  #numbers = 0;
  #messages: Recorded[] = [];
  readonly #ended: () => void;

  constructor(
    readonly id: number,
    readonly protocol: string,
    readonly address: string,
    ended: () => void,
  ) {
    this.peer = address;
    this.#ended = ended;
  }

  get recording(): boolean {
    if (this.#lookedAt === undefined) return false;
    if (now() - this.#lookedAt < FORGOTTEN_MS) return true;
    this.#lookedAt = undefined;
    this.#messages = [];
    return false;
  }

  /** `message` is made only where somebody looks. */
  heard(message: () => Message): void {
    if (this.#lookedAt !== undefined) this.#record("peer", message);
  }

  said(message: () => Message): void {
    if (this.#lookedAt !== undefined) this.#record("broker", message);
  }

  /** The peer has said who it is. */
  named(peer: string): void {
    this.peer = peer;
  }

  end(): void {
    this.#over = true;
    this.#ended();
  }

  /** The connection has ended. */
  get over(): boolean {
    return this.#over;
  }

  /** The messages after the one with this number; the first look begins the recording. */
  look(after: number): readonly Recorded[] {
    this.#lookedAt = now();
    return this.#messages.filter(({ number }) => number > after);
  }

  #record(from: Recorded["from"], message: () => Message): void {
    if (!this.recording) return;
    this.#messages.push({ ...message(), number: ++this.#numbers, at: now(), from });
    if (this.#messages.length > KEPT) this.#messages.splice(0, this.#messages.length - KEPT);
  }
}

export class Conversations {
  readonly #open = new Map<number, Conversation>();
  readonly #ended = new Map<number, Conversation>();
  #numbers = 0;

  begin(protocol: string, address: string): Conversation {
    const id = ++this.#numbers;
    const conversation = new Conversation(id, protocol, address, () => this.#end(conversation));
    this.#open.set(id, conversation);
    return conversation;
  }

  #end(conversation: Conversation): void {
    this.#open.delete(conversation.id);
    if (!conversation.recording) return;
    this.#ended.set(conversation.id, conversation);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > ENDED_KEPT && oldest !== undefined) this.#ended.delete(oldest);
  }

  get(id: number): Conversation | undefined {
    return this.#open.get(id) ?? this.#ended.get(id);
  }

  all(): IterableIterator<Conversation> {
    return this.#open.values();
  }
}
