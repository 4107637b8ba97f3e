/**
 * The connection of a runner to its manager. An original manager takes the result of one read for one message. So each
 * message is one write, Nagle's algorithm stays on, and a message that would follow another at once (after JES, or
 * PRETA for an empty script) is delayed.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { displayName, QUIET_MS, type RunexpMessage } from "../messages.js";
import { type ClientCallbacks, ClientStateMachine } from "./client-state-machine.js";
import type { Outcome } from "./spool.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

interface ManagerConnectionEvents extends Pick<ClientCallbacks, "joined" | "job" | "noJob" | "delivered"> {
  /** Nothing follows. */
  closed(end: ConnectionEnd): void;
  /** For a trace. */
  message?(from: "runner" | "manager", message: RunexpMessage): void;
}

export interface ConnectionEnd {
  readonly reason: string;
  /** The manager has another version or group: a reconnect makes no sense. */
  readonly refused: boolean;
  /** It ended after REZULTO was sent and before PRETA. */
  readonly resultRefused: boolean;
}

/** Between two messages that must not arrive together. */
const MESSAGE_GAP_MS = 100;
/** For VERSIO and ALIGI. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
const KEEPALIVE_MS = 10_000;

export class ManagerConnection {
  readonly #socket: Socket;
  readonly #events: ManagerConnectionEvents;
  readonly #states: ClientStateMachine;
  #outcome: Outcome | undefined;
  #queue: Uint8Array[] = [];
  #gapTimer: NodeJS.Timeout | undefined;
  #quietTimer: NodeJS.Timeout | undefined;
  readonly #handshakeTimer: NodeJS.Timeout;
  #end: Pick<ConnectionEnd, "reason" | "refused"> | undefined;

  constructor(address: Address, host: string, group: string, events: ManagerConnectionEvents) {
    this.#events = events;
    this.#states = new ClientStateMachine(group, {
      ...events,
      write: (bytes, alone) => this.#write(bytes, alone),
      received: (message) => events.message?.("manager", message),
      sent: (message) => events.message?.("runner", message),
      joined: () => {
        clearTimeout(this.#handshakeTimer);
        events.joined();
      },
      outputWanted: () => void this.#sendOutput(),
      refused: (reason) => this.#close({ reason, refused: true }),
      protocolError: (reason) => this.#close({ reason, refused: false }),
      startQuietTimer: () => {
        this.#quietTimer ??= setTimeout(() => {
          this.#quietTimer = undefined;
          this.#states.quietElapsed();
        }, QUIET_MS);
      },
    });
    this.#socket = connect({ ...address, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS });
    const silent = { reason: "the manager does not answer", refused: false };
    this.#handshakeTimer = setTimeout(() => this.#close(silent), HANDSHAKE_TIMEOUT_MS);
    this.#socket.once("connect", () => this.#states.sendHello(host));
    this.#socket.on("data", (bytes) => this.#received(bytes));
    this.#socket.on("error", (error) => {
      this.#end ??= { reason: error.message, refused: false };
    });
    this.#socket.once("close", () => this.#closed());
  }

  requestJob(): void {
    this.#states.requestJob();
  }

  deliver(outcome: Outcome): void {
    this.#outcome = outcome;
    this.#states.deliver(outcome.name, outcome.status, outcome.size);
  }

  /** FINO ANKAU, and the end. */
  leave(): void {
    this.#states.leave();
    this.#end = { reason: "the runner has left", refused: false };
    // Does not wait for the manager: an original closes its end when its batch is over.
    this.#socket.end(() => this.#socket.destroy());
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #received(bytes: Buffer): void {
    clearTimeout(this.#quietTimer);
    this.#quietTimer = undefined;
    this.#states.push(bytes);
  }

  #write(bytes: Uint8Array, alone: boolean): void {
    if (this.#gapTimer !== undefined) {
      this.#queue.push(bytes);
      return;
    }
    this.#socket.write(bytes);
    if (alone) this.#gapTimer = setTimeout(() => this.#flushQueue(), MESSAGE_GAP_MS);
  }

  #flushQueue(): void {
    this.#gapTimer = undefined;
    for (const bytes of this.#queue.splice(0)) this.#socket.write(bytes);
  }

  async #sendOutput(): Promise<void> {
    const outcome = this.#outcome;
    if (outcome === undefined) return;
    const pieces = outcome.chunks();
    // In one write: with Nagle's algorithm the second would wait until the first is acknowledged.
    if (Array.isArray(pieces)) {
      this.#states.sendOutput(Buffer.concat(pieces), true);
      return;
    }
    try {
      for await (const piece of pieces) {
        if (this.#socket.destroyed) return;
        this.#states.sendOutput(piece, false);
        if (this.#socket.writableNeedDrain) await drained(this.#socket);
      }
      this.#states.sendOutput(Buffer.alloc(0), true);
    } catch (cause) {
      this.#close({
        reason: `the result of ${displayName(outcome.name)} cannot be read: ${String(cause)}`,
        refused: false,
      });
    }
  }

  #close(end: Pick<ConnectionEnd, "reason" | "refused">): void {
    this.#end ??= end;
    this.#socket.destroy();
  }

  #closed(): void {
    clearTimeout(this.#handshakeTimer);
    clearTimeout(this.#quietTimer);
    clearTimeout(this.#gapTimer);
    const { state } = this.#states;
    const resultRefused = state.name === "SendOutcome" && state.step === "announced";
    this.#events.closed({
      ...(this.#end ?? { reason: "the manager closed the connection", refused: false }),
      resultRefused,
    });
  }
}

/** Resolves when the socket accepts more data, or is closed. */
async function drained(socket: Socket): Promise<void> {
  const over = new AbortController();
  await Promise.race(["drain", "close"].map((event) => once(socket, event, { signal: over.signal }))).catch(() => {});
  over.abort();
}
