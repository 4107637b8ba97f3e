/**
 * Records the last messages of connections, for debugging. Recording begins when the messages of a connection are read,
 * and ends when they have not been read for a while. While it is off it costs one comparison per message.
 */
import { now } from "./clock.js";

export interface TracedMessage {
  /** The name in the protocol: HELLO, PETO, TRACKEXEC. */
  readonly name: string;
  /** Readable fields: plain values, bytes as text or hex, long ones shortened. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly bytes?: number;
}

interface RecordedMessage extends TracedMessage {
  readonly number: number;
  readonly at: number;
  /** Who sent it. */
  readonly from: "peer" | "broker";
}

const MAX_MESSAGES = 500;
/** Recorded connections that have ended: their last messages are the interesting ones. */
const MAX_ENDED = 20;
/** Recording ends if the messages were not read for this long. */
const RECORDING_MS = 60_000;

/** One connection; of a listener of datagrams, one peer. */
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
    if (now() - this.#lastReadAt < RECORDING_MS) return true;
    this.#lastReadAt = undefined;
    this.#messages = [];
    return false;
  }

  /** `message` is called only while recording. */
  received(message: () => TracedMessage): void {
    if (this.#lastReadAt !== undefined) this.#record("peer", message);
  }

  sent(message: () => TracedMessage): void {
    if (this.#lastReadAt !== undefined) this.#record("broker", message);
  }

  /** The peer has identified itself. */
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

  /** The messages after the one with this number. The first call begins the recording. */
  messagesAfter(after: number): readonly RecordedMessage[] {
    this.#lastReadAt = now();
    return this.#messages.filter(({ number }) => number > after);
  }

  #record(from: RecordedMessage["from"], message: () => TracedMessage): void {
    if (!this.recording) return;
    this.#messages.push({ ...message(), number: ++this.#numbers, at: now(), from });
    if (this.#messages.length > MAX_MESSAGES) this.#messages.splice(0, this.#messages.length - MAX_MESSAGES);
  }
}

export class TracedConnections {
  readonly #open = new Map<number, TracedConnection>();
  readonly #ended = new Map<number, TracedConnection>();
  #numbers = 0;

  open(protocol: string, address: string): TracedConnection {
    const id = ++this.#numbers;
    const connection = new TracedConnection(id, protocol, address, () => this.#end(connection));
    this.#open.set(id, connection);
    return connection;
  }

  #end(connection: TracedConnection): void {
    this.#open.delete(connection.id);
    if (!connection.recording) return;
    this.#ended.set(connection.id, connection);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > MAX_ENDED && oldest !== undefined) this.#ended.delete(oldest);
  }

  get(id: number): TracedConnection | undefined {
    return this.#open.get(id) ?? this.#ended.get(id);
  }

  all(): IterableIterator<TracedConnection> {
    return this.#open.values();
  }
}
