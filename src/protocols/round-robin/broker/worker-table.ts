/**
 * The worker table of the server: the registered workers, their slots, and which of them are set aside. A worker whose connection or heartbeats are
 * gone is out of the table at once, but its slots are remembered: an original never registers twice by itself, so it comes back with its
 * next message. They are kept with the jobs, too: a broker that was started again must know its workers. A worker that went without
 * DEREGISTER has a new identity when it is back, and is forgotten after a while.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import { keepLatest } from "../../../base/keep-latest.js";
import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";
import type { Peer } from "../../zeromq/index.js";
import { printable } from "../frames.js";
import { HEARTBEAT_LIMITS, type HeartbeatLimits, HeartbeatMonitor } from "./heartbeat-monitor.js";
import { RoundRobinWorkerSession, type WorkerSessionContext } from "./worker-session.js";

/** How often heartbeats are checked within the shortest timeout. */
const CHECKS_PER_TIMEOUT = 10;

const AREA = "round-robin workers";
/** Workers that are remembered. */
const MAX_REGISTERED = 10_000;
const RETENTION_MS = 30 * 24 * 3_600_000;

/** The registered workers in the store, by the key of their peers, with their slots. */
export class RegisteredWorkers {
  readonly #core: Core;
  readonly #log: Log;
  /** As they are kept; the oldest first. */
  readonly #slotsByKey = new Map<string, number>();
  /** Those from before this start. */
  readonly loaded: ReadonlyMap<string, number>;

  private constructor(core: Core, log: Log, before: ReadonlyMap<string, number>) {
    this.#core = core;
    this.#log = log;
    this.loaded = before;
  }

  static async load(core: Core, log: Log): Promise<RegisteredWorkers> {
    const old = now() - RETENTION_MS;
    const all = [...(await core.keptTexts(AREA))].sort((a, b) => a.updatedAt - b.updatedAt);
    const before = new Map(all.map(({ key, value }) => [keyOf(key), Number(value)]));
    const workers = new RegisteredWorkers(core, log, before);
    for (const { key, value, updatedAt } of all) {
      if (updatedAt > old) workers.#slotsByKey.set(keyOf(key), Number(value));
      // If it comes back, it is stored again.
      else workers.#save(key, null);
    }
    return workers;
  }

  set(key: string, slots: number): void {
    // An automatic identity is another peer's the next time.
    if (key.startsWith("\0") || this.#slotsByKey.get(key) === slots) return;
    this.#slotsByKey.delete(key);
    this.#slotsByKey.set(key, slots);
    this.#save(nameOf(key), String(slots));
    const [oldest] = this.#slotsByKey.keys();
    if (this.#slotsByKey.size > MAX_REGISTERED && oldest !== undefined) this.delete(oldest);
  }

  delete(key: string): void {
    if (this.#slotsByKey.delete(key)) this.#save(nameOf(key), null);
  }

  #save(name: string, value: string | null): void {
    this.#core.put(AREA, name, value).catch((cause: unknown) => {
      // Work comes before memory: such a worker is registered by hand after the next start.
      this.#log.info({ code: asLaboroError(cause).code }, "a round-robin worker will not be remembered");
    });
  }
}

/** Identities are any bytes. */
const keyOf = (name: string): string => Buffer.from(name, "hex").toString("latin1");
const nameOf = (key: string): string => Buffer.from(key, "latin1").toString("hex");

interface TableEntry {
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
  readonly #workers = new Map<string, TableEntry>();
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

  session(peer: Peer): RoundRobinWorkerSession | undefined {
    return this.#workers.get(peer.key)?.session;
  }

  register(peer: Peer, slots: number): void {
    this.#lostWorkers.delete(peer.key);
    this.#registered.set(peer.key, slots);
    const known = this.session(peer);
    if (known === undefined) this.#enter(peer, slots, this.#context);
    else known.register(slots);
  }

  deregister(peer: Peer): void {
    this.#lostWorkers.delete(peer.key);
    this.#registered.delete(peer.key);
    this.session(peer)?.deregister();
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
    const session = this.session(peer);
    if (session === undefined) return;
    this.#workers.delete(peer.key);
    if (session.inTable) {
      this.#lostWorkers.set(peer.key, session.slots);
      keepLatest(this.#lostWorkers, MAX_REGISTERED);
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
    const { key } = peer;
    const send = (frames: readonly Uint8Array[]): boolean => this.#send(key, frames);
    const session = new RoundRobinWorkerSession(context, peer, send, slots, () => {
      if (this.session(peer) !== session) return;
      this.#workers.delete(key);
      this.#registered.delete(key);
    });
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
