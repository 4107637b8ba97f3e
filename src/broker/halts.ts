/**
 * Why no tasks are assigned: halts of this broker, and paused pools. Tasks are assigned again when the last reason is
 * gone. Requests are not affected.
 */
import { now } from "../base/clock.js";
import type { LaboroError } from "../base/errors.js";
import { onHalt, onPoolPaused, onResume, type State } from "../dispatch/index.js";
import type { Core } from "./core.js";
import type { Decide } from "./pending-requests.js";

const TEXTS = {
  commits: "its store cannot be written",
  lease: "its lease on the shared store is about to end",
  maintenance: "it is drained",
  stop: "it is stopping",
} as const;
type HaltReason = keyof typeof TEXTS;

export class Halts {
  readonly #state: State;
  readonly #decide: Decide;
  readonly #causes = new Map<HaltReason, LaboroError | undefined>();

  constructor(state: State, decide: Decide) {
    this.#state = state;
    this.#decide = decide;
  }

  causeOf(reason: HaltReason): LaboroError | undefined {
    return this.#causes.get(reason);
  }

  add(reason: HaltReason, cause?: LaboroError): void {
    this.#causes.set(reason, cause);
    this.#apply();
  }

  remove(reason: HaltReason): void {
    if (!this.#causes.delete(reason)) return;
    if (this.#causes.size === 0) this.#decide((out) => onResume(this.#state, out, now()));
    else this.#apply();
  }

  #apply(): void {
    const texts = Array.from(this.#causes, ([reason, cause]) =>
      cause === undefined ? TEXTS[reason] : `${TEXTS[reason]} (${cause.message})`,
    );
    onHalt(this.#state, texts.join("; "));
  }
}

/**
 * Whether this broker is being drained. Then it assigns nothing new, and listeners that know other brokers redirect
 * their peers.
 */
export class Maintenance {
  readonly #listeners = new Set<(draining: boolean) => void>();
  #draining = false;

  get draining(): boolean {
    return this.#draining;
  }

  /** Notifies the listeners of a change. */
  set(draining: boolean): void {
    if (this.#draining === draining) return;
    this.#draining = draining;
    for (const listener of [...this.#listeners]) listener(draining);
  }

  /** Returns the function that removes the listener. */
  onChanged(listener: (draining: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

// The paused pools, whose tasks are not started. They are texts in the store, and hold for all brokers of a group.

/** The bucket of the store with the paused pools. */
export const POOL_BUCKET = "pool";

interface PausedPool {
  readonly pool: string;
  /** Milliseconds since 1970. */
  readonly since: number;
  readonly reason?: string;
}

export class PausedPools {
  readonly #core: Core;
  #paused: ReadonlyMap<string, PausedPool> = new Map();
  #reading: Promise<void> = Promise.resolve();

  constructor(core: Core) {
    this.#core = core;
  }

  /** Before jobs are added to dispatch. */
  async open(): Promise<void> {
    this.#paused = await this.#stored();
    for (const { pool, reason } of this.#paused.values()) this.#core.state.pausedPools.set(pool, reason);
  }

  /** By name. */
  list(): readonly PausedPool[] {
    return [...this.#paused.values()];
  }

  /** When it resolves, it is durable and in effect here. Null resumes the pool. */
  async set(pool: string, paused: Omit<PausedPool, "pool"> | null): Promise<void> {
    await this.#core.put(POOL_BUCKET, pool, paused === null ? null : JSON.stringify(paused));
    await this.refresh();
  }

  /** Applies the stored pools. One read at a time, so that an older answer is not applied last. */
  refresh(): Promise<void> {
    this.#reading = this.#reading.catch(() => {}).then(() => this.#refresh());
    return this.#reading;
  }

  async #refresh(): Promise<void> {
    const before = this.#paused;
    this.#paused = await this.#stored();
    for (const pool of new Set([...before.keys(), ...this.#paused.keys()])) {
      const paused = this.#paused.get(pool);
      if (before.has(pool) === (paused !== undefined) && before.get(pool)?.reason === paused?.reason) continue;
      this.#core.decide((out) => onPoolPaused(this.#core.state, out, pool, paused, now()));
      this.#core.events.add({ kind: paused === undefined ? "pool-resumed" : "pool-paused", pool });
    }
  }

  async #stored(): Promise<Map<string, PausedPool>> {
    const stored = await this.#core.store.keyValues(POOL_BUCKET);
    return new Map(stored.map(({ key, value }) => [key, { pool: key, ...JSON.parse(value) }]));
  }
}
