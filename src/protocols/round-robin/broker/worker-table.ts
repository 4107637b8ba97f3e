/**
 * The worker table: the registered workers, their slots, and which of them are suspended. A worker that disconnects or
 * misses heartbeats leaves the table at once. Its slots are remembered, because an original never registers twice: its
 * next message restores it. The slots are also stored, for a restart of the broker. A worker that left without
 * DEREGISTER comes back with a new identity, so old entries expire.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import { keepLatest } from "../../../base/keep-latest.js";
import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";
import type { Peer } from "../../zeromq/index.js";
import { printable } from "../frames.js";
import { RoundRobinWorkerSession, type WorkerSessionContext } from "./worker-session.js";

/** How often heartbeats are checked within the shortest timeout. */
const CHECKS_PER_TIMEOUT = 10;

const AREA = "round-robin workers";
const MAX_REGISTERED = 10_000;
const RETENTION_MS = 30 * 24 * 3_600_000;

export interface HeartbeatLimits {
  /** Assumed until the interval of a worker is known. The original programs use 120 s. */
  readonly defaultIntervalMs: number;
  /** No worker is given up sooner than this. */
  readonly minTimeoutMs: number;
}

const HEARTBEAT_LIMITS: HeartbeatLimits = { defaultIntervalMs: 120_000, minTimeoutMs: 10_000 };
/** How many measured intervals are needed, and how many are kept. */
const MIN_INTERVALS = 4;
const MAX_INTERVALS = 8;
const MISSED_HEARTBEATS = 3;

/** The protocol does not say how often a worker PINGs. So its interval is measured; without one it cannot expire. */
export class HeartbeatMonitor {
  readonly #limits: HeartbeatLimits;
  #lastReceived: number;
  #lastPing: number | undefined;
  readonly #intervals: number[] = [];

  constructor(now: number, limits: HeartbeatLimits = HEARTBEAT_LIMITS) {
    this.#limits = limits;
    this.#lastReceived = now;
  }

  /** Any message. */
  received(now: number): void {
    this.#lastReceived = now;
  }

  pinged(now: number): void {
    if (this.#lastPing !== undefined) this.#intervals.push(now - this.#lastPing);
    if (this.#intervals.length > MAX_INTERVALS) this.#intervals.shift();
    this.#lastPing = now;
    this.#lastReceived = now;
  }

  expired(now: number): boolean {
    if (this.#intervals.length === 0) return false;
    const { defaultIntervalMs, minTimeoutMs } = this.#limits;
    const intervalMs = this.#intervals.length < MIN_INTERVALS ? defaultIntervalMs : Math.max(...this.#intervals);
    return now - this.#lastReceived > Math.max(minTimeoutMs, MISSED_HEARTBEATS * intervalMs);
  }
}

/** The slots of registered workers in the store, by the key of their peers. */
export class RegisteredWorkers {
  readonly #core: Core;
  readonly #log: Log;
  /** The oldest first. */
  readonly #slotsByKey = new Map<string, number>();
  /** From before this start. */
  readonly loaded: ReadonlyMap<string, number>;

  private constructor(core: Core, log: Log, loaded: ReadonlyMap<string, number>) {
    this.#core = core;
    this.#log = log;
    this.loaded = loaded;
  }

  static async load(core: Core, log: Log): Promise<RegisteredWorkers> {
    const old = now() - RETENTION_MS;
    const all = [...(await core.keptTexts(AREA))].sort((a, b) => a.updatedAt - b.updatedAt);
    const workers = new RegisteredWorkers(core, log, new Map(all.map(({ key, value }) => [keyOf(key), Number(value)])));
    for (const { key, value, updatedAt } of all) {
      if (updatedAt > old) workers.#slotsByKey.set(keyOf(key), Number(value));
      // Stored again if the worker comes back.
      else workers.#save(key, null);
    }
    return workers;
  }

  set(key: string, slots: number): void {
    // The next peer with the same automatic identity is another one.
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
      const { code, message } = asLaboroError(cause);
      const worker = printable(Buffer.from(name, "hex"));
      this.#log.info({ code, worker }, `${worker} is not stored, register it again after a restart: ${message}`);
    });
  }
}

/** Identities are any bytes; the store keeps text. */
const keyOf = (name: string): string => Buffer.from(name, "hex").toString("latin1");
const nameOf = (key: string): string => Buffer.from(key, "latin1").toString("hex");

interface TableEntry {
  readonly peer: Peer;
  readonly session: RoundRobinWorkerSession;
  readonly heartbeats: HeartbeatMonitor;
}

/** For the console. */
export interface WorkerRow {
  readonly address: string;
  readonly freeSlots: number;
  readonly slots: number;
  readonly messages: number;
}

export class WorkerTable {
  readonly #context: WorkerSessionContext;
  readonly #send: (key: string, frames: readonly Uint8Array[]) => boolean;
  readonly #workers = new Map<string, TableEntry>();
  readonly #registered: RegisteredWorkers;
  /** Slots of the suspended workers. */
  readonly #lost: Map<string, number>;
  readonly #heartbeatLimits: HeartbeatLimits;
  readonly #sweepTimer: NodeJS.Timeout;
  /** A clock that stops while this process is suspended, because workers are not silent then. */
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
    this.#lost = new Map(registered.loaded);
    this.#heartbeatLimits = heartbeatLimits;
    const sweepMs = heartbeatLimits.minTimeoutMs / CHECKS_PER_TIMEOUT;
    this.#sweepTimer = setInterval(() => this.#sweepExpired(sweepMs), sweepMs);
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

  session({ key }: Peer): RoundRobinWorkerSession | undefined {
    return this.#workers.get(key)?.session;
  }

  register(peer: Peer, slots: number): void {
    this.#lost.delete(peer.key);
    this.#registered.set(peer.key, slots);
    const known = this.session(peer);
    if (known === undefined) this.#enter(peer, slots, this.#context);
    else known.register(slots);
  }

  deregister(peer: Peer): void {
    this.#lost.delete(peer.key);
    this.#registered.delete(peer.key);
    this.session(peer)?.deregister();
  }

  received({ key }: Peer): void {
    this.#workers.get(key)?.heartbeats.received(this.#activeMs);
  }

  pinged({ key }: Peer): void {
    this.#workers.get(key)?.heartbeats.pinged(this.#activeMs);
  }

  isLost({ key }: Peer): boolean {
    return this.#lost.has(key);
  }

  /** Restores a suspended worker to the table after a message of it. */
  restore(peer: Peer): void {
    const slots = this.#lost.get(peer.key);
    if (slots === undefined) return;
    this.#lost.delete(peer.key);
    this.#registered.set(peer.key, slots);
    // The worker has already installed its commands.
    this.#enter(peer, slots, { ...this.#context, joinDelayMs: 0 });
  }

  markLost(peer: Peer): void {
    const session = this.session(peer);
    if (session === undefined) return;
    this.#workers.delete(peer.key);
    if (session.inTable) {
      this.#lost.set(peer.key, session.slots);
      keepLatest(this.#lost, MAX_REGISTERED);
    }
    session.lost();
  }

  /** There is a new command, which any worker may get. */
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

  #sweepExpired(sweepMs: number): void {
    const time = now();
    this.#activeMs += Math.min(time - this.#lastSweep, 2 * sweepMs);
    this.#lastSweep = time;
    for (const { peer, heartbeats } of this.#workers.values()) {
      if (heartbeats.expired(this.#activeMs)) this.markLost(peer);
    }
  }
}
