/**
 * The time by which delayed jobs start, in milliseconds since 1970. In a group it is the database's. Two readings of it differ after a
 * clock was set:
 *
 *   current   what the clock says now. For jobs with a named time (`at`)
 *   steady    the clock as this broker found it when it started, and the time that has passed since. For jobs with `delayMs`: a clock that
 *             is set forward does not start them early, one that is set back does not let them wait longer
 *
 * A start of the broker after the clock was set back is noticed by the newest job: it cannot have been made in the future.
 */
import { uptime } from "node:os";
import { now } from "../base/clock.js";
import type { Store } from "../model/store.js";

interface ClockSources {
  /** The clock of this machine. */
  readonly wall: () => number;
  /** Never set, does not go on while the machine sleeps. */
  readonly monotonic: () => number;
  /** Never set, goes on while the machine sleeps; undefined where the system has none. */
  readonly boot: () => number | undefined;
  /** The clock of the store, where brokers share it. */
  readonly store?: () => Promise<number>;
}

/** Less is the difference of two readings. */
const MIN_SLEEP_MS = 2_000;

export class StoreClock {
  readonly #sources: ClockSources;
  /** What the monotonic clock lacks, for each reading. */
  #steadyOffset = 0;
  #currentOffset = 0;
  #bootOffset = 0;

  private constructor(sources: ClockSources) {
    this.#sources = sources;
  }

  /** For an open store. */
  static async of(store: Store, system: ClockSources = SYSTEM_CLOCKS): Promise<StoreClock> {
    const { shared, group } = store;
    if (shared && group !== undefined) return StoreClock.open({ ...system, store: () => group.clock() });
    return StoreClock.open(system, (await store.jobs({ limit: 1 })).jobs[0]?.created);
  }

  /** `newestJob` is when the newest job was made, by this machine's clock. */
  static async open(sources: ClockSources, newestJob?: number): Promise<StoreClock> {
    const clock = new StoreClock(sources);
    await clock.measure();
    const start = sources.monotonic();
    clock.#steadyOffset = Math.max(clock.#currentOffset, (newestJob ?? 0) - start);
    clock.#bootOffset = (sources.boot() ?? start) - start;
    return clock;
  }

  /** Reads the clocks again. */
  async measure(): Promise<void> {
    const { store, wall, monotonic } = this.#sources;
    // The answer of the store is older than its arrival: jobs may start late by that, and never early.
    const current = store === undefined ? wall() : await store();
    this.#currentOffset = current - monotonic();
    const boot = this.#sources.boot();
    const slept = boot === undefined ? 0 : boot - monotonic() - this.#bootOffset;
    if (slept < MIN_SLEEP_MS || this.#bootOffset === 0) return;
    this.#bootOffset += slept;
    this.#steadyOffset += slept;
  }

  get current(): number {
    return this.#sources.store === undefined ? this.#sources.wall() : this.#sources.monotonic() + this.#currentOffset;
  }

  get steady(): number {
    return this.#sources.monotonic() + this.#steadyOffset;
  }
}

/** Those of this machine. */
const SYSTEM_CLOCKS: ClockSources = {
  wall: Date.now,
  monotonic: now,
  // Elsewhere it is counted from the clock that is set.
  boot: () => (process.platform === "linux" ? uptime() * 1_000 : undefined),
};
