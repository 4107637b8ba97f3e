/**
 * The connection of a runner to its manager. One message is one write and Nagle's algorithm stays on, because an original manager takes
 * whatever one read gives it for one message. Where a second message would follow at once (JES, PRETA for an empty script) it waits, so
 * that the two do not arrive as one. A manager of ours has neither need.
 */
import { connect, type Socket } from "node:net";
import type { RunexpMessage } from "../messages.js";
import { QUIET_MS } from "../reader.js";
import { type ClientPorts, ClientSide, type Job, type NoJob } from "./client-states.js";
import type { Outcome } from "./outcome.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface LineEvents {
  joined(): void;
  job(job: Job): void;
  noJob(answer: NoJob): void;
  delivered(): void;
  /** Nothing follows. `refused`: the manager is another's; it makes no sense to come again. */
  closed(end: LineEnd): void;
  /** For who wants to see it all. */
  message?(from: "runner" | "manager", message: RunexpMessage): void;
}

export interface LineEnd {
  readonly reason: string;
  readonly refused: boolean;
  /** It ended after REZULTO was said and before the manager wanted the output. */
  readonly resultRefused: boolean;
}

/** Between two messages that must not arrive together. */
const APART_MS = 100;
/** A manager that does not say VERSIO and ALIGI is none. */
const HAIL_MS = 10_000;
const KEEPALIVE_MS = 10_000;

export class Line {
  readonly #socket: Socket;
  readonly #events: LineEvents;
  readonly #side: ClientSide;
  #outcome: Outcome | undefined;
  /** Nothing waits to be sent together with more. */
  #isQuick = false;
  #queue: Uint8Array[] = [];
  #apart: NodeJS.Timeout | undefined;
  #quiet: NodeJS.Timeout | undefined;
  readonly #hail: NodeJS.Timeout;
  #end: Pick<LineEnd, "reason" | "refused"> | undefined;

  constructor(address: Address, host: string, group: string, events: LineEvents) {
    this.#events = events;
    const ports: ClientPorts = {
      write: (bytes, alone) => this.#write(bytes, alone),
      heard: (message) => events.message?.("manager", message),
      said: (message) => events.message?.("runner", message),
      joined: () => {
        clearTimeout(this.#hail);
        events.joined();
      },
      job: (job) => events.job(job),
      noJob: (answer) => events.noJob(answer),
      outputWanted: () => void this.#sendOutput(),
      delivered: () => events.delivered(),
      refused: (reason) => this.#close({ reason, refused: true }),
      wrong: (reason) => this.#close({ reason, refused: false }),
      wantsQuiet: () => {
        this.#quiet ??= setTimeout(() => {
          this.#quiet = undefined;
          this.#side.quiet();
        }, QUIET_MS);
      },
    };
    this.#side = new ClientSide(group, ports, { asksForKin: true });
    this.#socket = connect({ ...address, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS });
    const silent = { reason: "the manager does not answer", refused: false };
    this.#hail = setTimeout(() => this.#close(silent), HAIL_MS);
    this.#socket.once("connect", () => this.#side.hail(host));
    this.#socket.on("data", (bytes) => this.#heard(bytes));
    this.#socket.on("error", (error) => {
      this.#end ??= { reason: error.message, refused: false };
    });
    this.#socket.once("close", () => this.#closed());
  }

  ask(): void {
    this.#side.ask();
  }

  deliver(outcome: Outcome): void {
    this.#outcome = outcome;
    if (this.#side.isKin && !this.#isQuick) {
      this.#isQuick = true;
      this.#socket.setNoDelay(true);
    }
    // Its output may follow at once, and goes in the same write.
    this.#socket.cork();
    this.#side.deliver(outcome.name, outcome.status, outcome.size);
    this.#socket.uncork();
  }

  /** The manager is one of ours. */
  get isKin(): boolean {
    return this.#side.isKin;
  }

  giveBack(name: string): void {
    this.#side.giveBack(name);
  }

  /** FINO ANKAU, and the end. */
  leave(): void {
    this.#side.leave();
    this.#end = { reason: "all is said", refused: false };
    // Not until the manager closes too: an original one does that when its batch is over.
    this.#socket.end(() => this.#socket.destroy());
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #heard(bytes: Buffer): void {
    clearTimeout(this.#quiet);
    this.#quiet = undefined;
    this.#side.push(bytes);
  }

  #write(bytes: Uint8Array, alone: boolean): void {
    if (this.#apart !== undefined) {
      this.#queue.push(bytes);
      return;
    }
    this.#socket.write(bytes);
    if (alone) this.#apart = setTimeout(() => this.#nextApart(), APART_MS);
  }

  #nextApart(): void {
    this.#apart = undefined;
    for (const bytes of this.#queue.splice(0)) this.#socket.write(bytes);
  }

  async #sendOutput(): Promise<void> {
    const outcome = this.#outcome;
    if (outcome === undefined) return;
    const pieces = outcome.pieces();
    // In one write: the last of several small ones would wait for the manager's machine to acknowledge the first.
    if (Array.isArray(pieces)) {
      this.#side.sendOutput(Buffer.concat(pieces), true);
      return;
    }
    try {
      for await (const piece of pieces) {
        if (this.#socket.destroyed) return;
        this.#side.sendOutput(piece, false);
        if (this.#socket.writableNeedDrain) await drained(this.#socket);
      }
      this.#side.sendOutput(Buffer.alloc(0), true);
    } catch (cause) {
      this.#close({ reason: `a result cannot be read: ${String(cause)}`, refused: false });
    }
  }

  #close(end: Pick<LineEnd, "reason" | "refused">): void {
    this.#end ??= end;
    this.#socket.destroy();
  }

  #closed(): void {
    clearTimeout(this.#hail);
    clearTimeout(this.#quiet);
    clearTimeout(this.#apart);
    const { state } = this.#side;
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
