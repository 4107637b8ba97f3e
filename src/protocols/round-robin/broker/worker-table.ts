/**
 * The worker table of the server: who has registered, and who is set aside. A worker whose connection or heartbeats are gone is out of the
 * table at once, but its slots are remembered: an original never registers twice by itself, so it comes back with its next message.
 */
import { now } from "../../../base/clock.js";
import type { Peer } from "../../zeromq/index.js";
import { type Message, printable } from "../frames.js";
import { HEARTBEAT_LIMITS, type HeartbeatLimits, HeartbeatMonitor } from "./heartbeat-monitor.js";
import { MAX_REGISTERED, type RegisteredWorkers } from "./registered-workers.js";
import { RoundRobinWorkerSession, type WorkerSessionContext } from "./worker-session.js";

/** How often heartbeats are checked within the shortest timeout. */
const CHECKS_PER_TIMEOUT = 10;

interface RegisteredWorker {
  readonly peer: Peer;
  readonly session: RoundRobinWorkerSession;
  readonly heartbeats: HeartbeatMonitor;
}

/** A row as a person sees it. */
export interface WorkerRow {
  readonly address: string;
  readonly freeSlots: number;
  readonly slots: number;
  /** Messages that it was given. */
  readonly messages: number;
}

export class WorkerTable {
  readonly #context: WorkerSessionContext;
  readonly #send: (key: string, frames: readonly Uint8Array[]) => boolean;
  readonly #sweepMs: number;
  readonly #workers = new Map<string, RegisteredWorker>();
  readonly #registered: RegisteredWorkers;
  readonly #lostWorkers: Map<string, number>;
  readonly #heartbeatLimits: HeartbeatLimits;
  readonly #sweepTimer: NodeJS.Timeout;
  /** Milliseconds, but not those in which this process did not run: nobody's heartbeats stop because of them. */
  #activeMs = 0;
  #lastSweep = now();

  constructor(
    context: WorkerSessionContext,
    send: (key: string, frames: readonly Uint8Array[]) => boolean,
    registered: RegisteredWorkers,
    heartbeatLimits: HeartbeatLimits = HEARTBEAT_LIMITS,
  ) {
    this.#context = context;
    this.#send = send;
    this.#registered = registered;
    this.#lostWorkers = new Map(registered.loaded);
    this.#heartbeatLimits = heartbeatLimits;
    this.#sweepMs = heartbeatLimits.minTimeoutMs / CHECKS_PER_TIMEOUT;
    this.#sweepTimer = setInterval(() => this.#sweepExpired(), this.#sweepMs);
  }

  rows(): WorkerRow[] {
    const inTable = [...this.#workers.values()].filter(({ session }) => session.inTable);
    return inTable.map(({ peer, session: { freeSlots, slots, messages } }) => ({
      address: printable(peer.identity, 255),
      freeSlots,
      slots,
      messages,
    }));
  }

  register(peer: Peer, slots: number): void {
    this.#lostWorkers.delete(peer.key);
    this.#registered.set(peer.key, slots);
    const known = this.#workers.get(peer.key);
    if (known === undefined) this.#enter(peer, slots, this.#context);
    else known.session.register(slots);
  }

  deregister(peer: Peer): void {
    this.#lostWorkers.delete(peer.key);
    this.#registered.delete(peer.key);
    this.#workers.get(peer.key)?.session.deregister();
  }

  increment(peer: Peer): void {
    this.#workers.get(peer.key)?.session.increment();
  }

  /** False where it answers nothing that this worker was given; `frames` are what the asker would get. */
  responded(peer: Peer, message: Message, frames: () => readonly Uint8Array[]): boolean {
    return this.#workers.get(peer.key)?.session.responded(message, frames) ?? false;
  }

  received(peer: Peer): void {
    this.#workers.get(peer.key)?.heartbeats.received(this.#activeMs);
  }

  pinged(peer: Peer): void {
    this.#workers.get(peer.key)?.heartbeats.pinged(this.#activeMs);
  }

  isLost(peer: Peer): boolean {
    return this.#lostWorkers.has(peer.key);
  }

  /** A message came: a worker that was set aside is in the table again. */
  restore(peer: Peer): void {
    const slots = this.#lostWorkers.get(peer.key);
    if (slots === undefined) return;
    this.#lostWorkers.delete(peer.key);
    this.#registered.set(peer.key, slots);
    // It has its commands: nothing need be waited for.
    this.#enter(peer, slots, { ...this.#context, joinDelayMs: 0 });
  }

  markLost(peer: Peer): void {
    const entry = this.#workers.get(peer.key);
    if (entry === undefined) return;
    const { session } = entry;
    this.#workers.delete(peer.key);
    if (session.inTable) {
      this.#lostWorkers.set(peer.key, session.slots);
      const [oldest] = this.#lostWorkers.keys();
      if (this.#lostWorkers.size > MAX_REGISTERED && oldest !== undefined) this.#lostWorkers.delete(oldest);
    }
    session.lost();
  }

  /** There is a command more, which any of them may be given. */
  updateProfiles(): void {
    for (const { session } of this.#workers.values()) session.updateProfile();
  }

  close(): void {
    clearInterval(this.#sweepTimer);
    for (const { peer } of [...this.#workers.values()]) this.markLost(peer);
  }

  #enter(peer: Peer, slots: number, context: WorkerSessionContext): void {
    const { key, identity, address } = peer;
    const session = new RoundRobinWorkerSession(
      context,
      { identity, address, send: (frames) => this.#send(key, frames) },
      slots,
      () => {
        if (this.#workers.get(key)?.session !== session) return;
        this.#workers.delete(key);
        this.#registered.delete(key);
      },
    );
    this.#workers.set(key, { peer, session, heartbeats: new HeartbeatMonitor(this.#activeMs, this.#heartbeatLimits) });
  }

  #sweepExpired(): void {
    const time = now();
    this.#activeMs += Math.min(time - this.#lastSweep, 2 * this.#sweepMs);
    this.#lastSweep = time;
    for (const { peer, heartbeats } of this.#workers.values()) {
      if (heartbeats.expired(this.#activeMs)) this.markLost(peer);
    }
  }
}
