/**
 * The worker table of the server: who has registered, and who is set aside. A worker whose connection or heartbeats are gone is out of the
 * table at once, but its slots are remembered: an original never registers twice by itself, so it comes back when it is heard of again.
 */
import { now } from "../../../base/clock.js";
import type { Peer } from "../../zeromq/index.js";
import { type Message, shown } from "../frames.js";
import { MOST_REMEMBERED, type RegisteredWorkers } from "./registered.js";
import { PATIENCE, type Patience, Rhythm } from "./rhythm.js";
import { WorkerSession, type WorkerSurroundings } from "./worker-session.js";

/** So often is looked within the least time after which a worker is given up. */
const LOOKS = 10;

interface Entry {
  readonly peer: Peer;
  readonly session: WorkerSession;
  readonly rhythm: Rhythm;
}

/** A row as a person sees it. */
export interface WorkerRow {
  readonly address: string;
  readonly free: number;
  readonly slots: number;
  /** Messages that it was given. */
  readonly handled: number;
}

export class WorkerTable {
  readonly #around: WorkerSurroundings;
  readonly #send: (key: string, frames: readonly Uint8Array[]) => boolean;
  readonly #lookMs: number;
  readonly #entries = new Map<string, Entry>();
  readonly #registered: RegisteredWorkers;
  readonly #aside: Map<string, number>;
  readonly #patience: Patience;
  readonly #sweep: NodeJS.Timeout;
  /** Milliseconds, but not those in which this process did not run: nobody's heartbeats stop because of them. */
  #awake = 0;
  #swept = now();

  constructor(
    around: WorkerSurroundings,
    send: (key: string, frames: readonly Uint8Array[]) => boolean,
    registered: RegisteredWorkers,
    patience: Patience = PATIENCE,
  ) {
    this.#around = around;
    this.#send = send;
    this.#registered = registered;
    this.#aside = new Map(registered.before);
    this.#patience = patience;
    this.#lookMs = patience.leastMs / LOOKS;
    this.#sweep = setInterval(() => this.#look(), this.#lookMs);
  }

  rows(): WorkerRow[] {
    const shownOnes = [...this.#entries.values()].filter(({ session }) => session.inTable);
    return shownOnes.map(({ peer, session: { free, slots, handled } }) => ({
      address: shown(peer.identity, 255),
      free,
      slots,
      handled,
    }));
  }

  register(peer: Peer, slots: number): void {
    this.#aside.delete(peer.key);
    this.#registered.set(peer.key, slots);
    const known = this.#entries.get(peer.key);
    if (known === undefined) this.#enter(peer, slots, this.#around);
    else known.session.register(slots);
  }

  deregister(peer: Peer): void {
    this.#aside.delete(peer.key);
    this.#registered.delete(peer.key);
    this.#entries.get(peer.key)?.session.deregister();
  }

  increment(peer: Peer): void {
    this.#entries.get(peer.key)?.session.increment();
  }

  /** False where it answers nothing that this worker was given; `frames` are what the asker would get. */
  responded(peer: Peer, message: Message, frames: () => readonly Uint8Array[]): boolean {
    return this.#entries.get(peer.key)?.session.responded(message, frames) ?? false;
  }

  heard(peer: Peer): void {
    this.#entries.get(peer.key)?.rhythm.heard(this.#awake);
  }

  pinged(peer: Peer): void {
    this.#entries.get(peer.key)?.rhythm.pinged(this.#awake);
  }

  isAside(peer: Peer): boolean {
    return this.#aside.has(peer.key);
  }

  /** A sign of life: one that was set aside is in the table again. */
  back(peer: Peer): void {
    const slots = this.#aside.get(peer.key);
    if (slots === undefined) return;
    this.#aside.delete(peer.key);
    this.#registered.set(peer.key, slots);
    // It has its commands: nothing need be waited for.
    this.#enter(peer, slots, { ...this.#around, settleMs: 0 });
  }

  setAside(peer: Peer): void {
    const entry = this.#entries.get(peer.key);
    if (entry === undefined) return;
    const { session } = entry;
    this.#entries.delete(peer.key);
    if (session.inTable) {
      this.#aside.set(peer.key, session.slots);
      const [oldest] = this.#aside.keys();
      if (this.#aside.size > MOST_REMEMBERED && oldest !== undefined) this.#aside.delete(oldest);
    }
    session.lost();
  }

  /** There is a command more, which any of them may be given. */
  offerAll(): void {
    for (const { session } of this.#entries.values()) session.offer();
  }

  close(): void {
    clearInterval(this.#sweep);
    for (const { peer } of [...this.#entries.values()]) this.setAside(peer);
  }

  #enter(peer: Peer, slots: number, around: WorkerSurroundings): void {
    const { key, identity, address } = peer;
    const session = new WorkerSession(
      around,
      { identity, address, send: (frames) => this.#send(key, frames) },
      slots,
      () => {
        if (this.#entries.get(key)?.session !== session) return;
        this.#entries.delete(key);
        this.#registered.delete(key);
      },
    );
    this.#entries.set(key, { peer, session, rhythm: new Rhythm(this.#awake, this.#patience) });
  }

  #look(): void {
    const time = now();
    this.#awake += Math.min(time - this.#swept, 2 * this.#lookMs);
    this.#swept = time;
    for (const { peer, rhythm } of this.#entries.values()) {
      if (rhythm.stopped(this.#awake)) this.setAside(peer);
    }
  }
}
