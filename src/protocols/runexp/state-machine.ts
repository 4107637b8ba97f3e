/**
 * The base of both sides of a connection. It takes messages from the reader as long as the state changes. A nested call
 * leaves the rest to the outer loop, so that the stack does not grow with the messages.
 */
import { MessageReader, type ReadResult, type RunexpMessage } from "./messages.js";

/** Not a state of the specification: the peer has left, or it violated the protocol. */
export interface Closed {
  readonly name: "closed";
}

export interface ReadCallbacks<Received extends RunexpMessage> {
  received(message: Received, bytes: number): void;
  /** The peer sent something unexpected: close the connection. Nothing follows. */
  protocolError(reason: string): void;
  /** Call `quietElapsed` if nothing comes for QUIET_MS. */
  startQuietTimer(): void;
}

export abstract class StateMachine<State extends { readonly name: string }, Received extends RunexpMessage> {
  protected current: State | Closed;
  protected readonly reader = new MessageReader();
  readonly #callbacks: ReadCallbacks<Received>;
  /** For the reason of an error. */
  readonly #peer: string;
  #running = false;

  constructor(first: State, callbacks: ReadCallbacks<Received>, peer: string) {
    this.current = first;
    this.#callbacks = callbacks;
    this.#peer = peer;
  }

  /** Takes the next message that this state allows. */
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

  /** The next message; undefined if it is not complete yet. */
  protected take<T extends Received["type"]>(expected: readonly T[]): Extract<Received, { type: T }> | undefined {
    const taken = this.reader.take(expected) as ReadResult<Extract<Received, { type: T }>>;
    if (taken.kind === "message") {
      this.#callbacks.received(taken.message, taken.bytes);
      return taken.message;
    }
    if (taken.kind === "needs-quiet") this.#callbacks.startQuietTimer();
    if (taken.kind === "wrong") this.fail(`expected ${expected.join(" or ")}, ${this.#peer} sent ${taken.text}`);
    return undefined;
  }

  protected fail(reason: string): void {
    this.current = { name: "closed" };
    this.#callbacks.protocolError(reason);
  }
}
