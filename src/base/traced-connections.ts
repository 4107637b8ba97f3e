/**
 * What is said on a connection, for who asks to see it. Recording is off until somebody does, and costs a look at one flag until then;
 * it ends by itself when nobody has looked for a while. Of each conversation the last messages are kept.
 */
import { now } from "./clock.js";

export interface TracedMessage {
  /** By the protocol's own word: HELLO, PETO, TRACKEXEC. */
  readonly name: string;
  /** Its fields, as a person would read them: plain values, bytes as text or hex, long ones cut. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly bytes?: number;
}

export interface RecordedMessage extends TracedMessage {
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
export class TracedConnection {
  readonly opened = now();
  peer: string;
  #closed = false;
  #lastReadAt: number | undefined;
  #numbers = 0;
  #messages: RecordedMessage[] = [];
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
    if (this.#lastReadAt === undefined) return false;
    if (now() - this.#lastReadAt < FORGOTTEN_MS) return true;
    this.#lastReadAt = undefined;
    this.#messages = [];
    return false;
  }

  /** `message` is made only where somebody looks. */
  received(message: () => TracedMessage): void {
    if (this.#lastReadAt !== undefined) this.#record("peer", message);
  }

  sent(message: () => TracedMessage): void {
    if (this.#lastReadAt !== undefined) this.#record("broker", message);
  }

  /** The peer has said who it is. */
  setPeer(peer: string): void {
    this.peer = peer;
  }

  close(): void {
    this.#closed = true;
    this.#ended();
  }

  /** The connection has ended. */
  get closed(): boolean {
    return this.#closed;
  }

  /** The messages after the one with this number; the first look begins the recording. */
  messagesAfter(after: number): readonly RecordedMessage[] {
    this.#lastReadAt = now();
    return this.#messages.filter(({ number }) => number > after);
  }

  #record(from: RecordedMessage["from"], message: () => TracedMessage): void {
    if (!this.recording) return;
    this.#messages.push({ ...message(), number: ++this.#numbers, at: now(), from });
    if (this.#messages.length > KEPT) this.#messages.splice(0, this.#messages.length - KEPT);
  }
}

export class TracedConnections {
  readonly #open = new Map<number, TracedConnection>();
  readonly #ended = new Map<number, TracedConnection>();
  #numbers = 0;

  open(protocol: string, address: string): TracedConnection {
    const id = ++this.#numbers;
    const conversation = new TracedConnection(id, protocol, address, () => this.#end(conversation));
    this.#open.set(id, conversation);
    return conversation;
  }

  #end(conversation: TracedConnection): void {
    this.#open.delete(conversation.id);
    if (!conversation.recording) return;
    this.#ended.set(conversation.id, conversation);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > ENDED_KEPT && oldest !== undefined) this.#ended.delete(oldest);
  }

  get(id: number): TracedConnection | undefined {
    return this.#open.get(id) ?? this.#ended.get(id);
  }

  all(): IterableIterator<TracedConnection> {
    return this.#open.values();
  }
}
