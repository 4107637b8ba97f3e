/** The pools that are paused: none of their tasks is started. They are small texts in the store, and all brokers of a group keep to them. */
import { now } from "../base/clock.js";
import { onPoolPaused } from "../dispatch/index.js";
import type { Core } from "./core.js";

/** The bucket of the store with the paused pools. */
export const POOL_BUCKET = "pool";

export interface PausedPool {
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

  /** When it resolves, it is durable and holds here. Null for a pool that goes on. */
  async set(pool: string, paused: Omit<PausedPool, "pool"> | null): Promise<void> {
    await this.#core.put(POOL_BUCKET, pool, paused === null ? null : JSON.stringify(paused));
    await this.refresh();
  }

  /** Applies what is stored. One read at a time: an older answer must not come last. */
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
