/**
 * What both sides of a connection share: the messages that can come now are taken from the reader as long as the state changes. A call from
 * within a step returns at once and leaves the rest to the loop that runs already: a peer may send any number of messages at once, and the
 * stack must not grow with them.
 */
import { MessageReader, type ReadResult } from "./message-reader.js";
import type { RunexpMessage } from "./messages.js";

/** No state of the text: the peer has left, or what it sent was wrong. */
export interface Closed {
  readonly name: "closed";
}

export interface ReadCallbacks<Received extends RunexpMessage> {
  received(message: Received, bytes: number): void;
  /** What came is no message that can come now: the connection is to be ended. Nothing follows. */
  protocolError(reason: string): void;
  /** Call `quietElapsed` if nothing comes for QUIET_MS. */
  startQuietTimer(): void;
}

export abstract class StateMachine<State extends { readonly name: string }, Received extends RunexpMessage> {
  protected current: State | Closed;
  protected readonly reader = new MessageReader();
  readonly #callbacks: ReadCallbacks<Received>;
  /** The other end, in the reason of an error. */
  readonly #peer: string;
  #running = false;

  constructor(first: State, callbacks: ReadCallbacks<Received>, peer: string) {
    this.current = first;
    this.#callbacks = callbacks;
    this.#peer = peer;
  }

  /** Takes what has come as far as this state allows; each message may change it. */
  protected abstract step(state: State | Closed): void;

  get state(): State | Closed {
    return this.current;
  }

  push(bytes: Uint8Array): void {
    if (this.current.name === "closed") return;
    this.reader.push(bytes);
    this.read();
  }

  quietElapsed(): void {
    if (this.current.name === "closed") return;
    this.reader.quietElapsed();
    this.read();
  }

  protected read(): void {
    if (this.#running) return;
    this.#running = true;
    try {
      for (let before: State | Closed | undefined; before !== this.current; ) {
        before = this.current;
        this.step(before);
      }
    } finally {
      this.#running = false;
    }
  }

  /** The next message, which can only be one of these; undefined where it is not whole yet. */
  protected take<T extends Received["type"]>(expected: readonly T[]): Extract<Received, { type: T }> | undefined {
    const taken = this.reader.take(expected) as ReadResult<Extract<Received, { type: T }>>;
    if (taken.kind === "message") {
      this.#callbacks.received(taken.message, taken.bytes);
      return taken.message;
    }
    if (taken.kind === "needs-quiet") this.#callbacks.startQuietTimer();
    if (taken.kind === "wrong") this.fail(`${expected.join(" or ")} was expected, ${this.#peer} sent ${taken.text}`);
    return undefined;
  }

  protected fail(reason: string): void {
    this.current = { name: "closed" };
    this.#callbacks.protocolError(reason);
  }
}
