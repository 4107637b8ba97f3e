/**
 * The connection of a runner to its manager. One message is one write and Nagle's algorithm stays on, because an original manager takes
 * whatever one read gives it for one message. Where a second message would follow at once (JES, PRETA for an empty script) it waits, so
 * that the two do not arrive as one.
 */
import { connect, type Socket } from "node:net";
import { QUIET_MS } from "../message-reader.js";
import type { NoJobReply, RunexpMessage } from "../messages.js";
import { type ClientCallbacks, ClientStateMachine, type Job } from "./client-state-machine.js";
import type { Outcome } from "./outcome.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface ManagerConnectionEvents {
  joined(): void;
  job(job: Job): void;
  noJob(answer: NoJobReply): void;
  delivered(): void;
  /** Nothing follows. `refused`: the manager has another version or group; a reconnect makes no sense. */
  closed(end: ConnectionEnd): void;
  /** Every message, for a trace. */
  message?(from: "runner" | "manager", message: RunexpMessage): void;
}

export interface ConnectionEnd {
  readonly reason: string;
  readonly refused: boolean;
  /** It ended after REZULTO was sent and before the manager asked for the output. */
  readonly resultRefused: boolean;
}

/** Between two messages that must not arrive together. */
const MESSAGE_GAP_MS = 100;
/** How long the manager has to send VERSIO and ALIGI. */
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
    const callbacks: ClientCallbacks = {
      write: (bytes, alone) => this.#write(bytes, alone),
      received: (message) => events.message?.("manager", message),
      sent: (message) => events.message?.("runner", message),
      joined: () => {
        clearTimeout(this.#handshakeTimer);
        events.joined();
      },
      job: (job) => events.job(job),
      noJob: (answer) => events.noJob(answer),
      outputWanted: () => void this.#sendOutput(),
      delivered: () => events.delivered(),
      refused: (reason) => this.#close({ reason, refused: true }),
      protocolError: (reason) => this.#close({ reason, refused: false }),
      startQuietTimer: () => {
        this.#quietTimer ??= setTimeout(() => {
          this.#quietTimer = undefined;
          this.#states.quietElapsed();
        }, QUIET_MS);
      },
    };
    this.#states = new ClientStateMachine(group, callbacks);
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
    // Not until the manager closes too: an original one does that when its batch is over.
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
    // In one write: the last of several small ones would wait until the first is acknowledged.
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
      this.#close({ reason: `a result cannot be read: ${String(cause)}`, refused: false });
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
    this.#events.closed({ ...(this.#end ?? { reason: "the manager has gone", refused: false }), resultRefused });
  }
}

const drained = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      socket.off("drain", done);
      socket.off("close", done);
      resolve();
    };
    socket.once("drain", done);
    socket.once("close", done);
  });
