/**
 * Starts delayed jobs. Until their time they are in the store only, which finds them by an index. One timer is set, for
 * the first of them. The clocks are compared every few seconds, because one of them may be set.
 */
import { uptime } from "node:os";
import { Alarm, now } from "../base/clock.js";
import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import { onJobsDue, waitsInDispatch } from "../dispatch/index.js";
import type { JobId } from "../model/ids.js";
import type { Job, JobSpec } from "../model/job.js";
import type { Store } from "../model/store.js";
import type { NextDelayed } from "../model/store-reads.js";
import type { Core } from "./core.js";

/** Jobs started in one commit. */
const AT_ONCE = 1_000;
/** How often the clocks are compared, and in a group how often jobs of other brokers are looked for. */
const CHECK_MS = 5_000;
const RETRY_MS = 1_000;
/** Fewer jobs than this are counted each time, more with pauses between. */
const COUNTED_AT_ONCE = 10_000;
const COUNT_PAUSE_FACTOR = 50;

export class DelayedJobs {
  readonly #core: Core;
  readonly #log: Log;
  readonly #clock: StoreClock;
  /** Delayed jobs that dispatch knows, because they wait for other jobs as well. */
  readonly #inDispatch = new Map<JobId, Job>();
  readonly #alarm = new Alarm(() => void this.#run());
  #counted = { count: 0, until: 0 };
  #running = false;
  #again = false;
  #stopped = false;

  constructor(core: Core, clock: StoreClock, log: Log) {
    this.#core = core;
    this.#clock = clock;
    this.#log = log;
  }

  /** Called when jobs are known in dispatch. */
  start(): void {
    void this.#run();
  }

  stop(): void {
    this.#stopped = true;
    this.#alarm.clear();
  }

  /** Sets `notBefore` from `delayMs`. Drops a `notBefore` that has passed. */
  withTime({ delayMs, notBefore: at, ...spec }: JobSpec): JobSpec {
    if (delayMs !== undefined && delayMs > 0) return { ...spec, delayMs, notBefore: this.#clock.steady + delayMs };
    return at === undefined || at <= this.#clock.current ? spec : { ...spec, notBefore: at };
  }

  msUntil({ notBefore, delayMs }: Pick<JobSpec, "notBefore" | "delayMs">): number {
    if (notBefore === undefined) return 0;
    return notBefore - (delayMs === undefined ? this.#clock.current : this.#clock.steady);
  }

  /** The number of delayed jobs, of all brokers. If counting takes long, the number may be out of date. */
  async count(): Promise<number> {
    const begun = now();
    if (begun >= this.#counted.until) {
      const count = await this.#core.store.delayedCount();
      this.#counted = { count, until: count < COUNTED_AT_ONCE ? 0 : now() + (now() - begun) * COUNT_PAUSE_FACTOR };
    }
    return this.#counted.count;
  }

  /** A delayed job was stored, here or by another broker. */
  added(job: Job): void {
    if (job.delayed === true) this.#wakeIn(this.msUntil(job));
  }

  /** Adds delayed jobs that others wait for. In a group, RemoteChanges does it. */
  async load(jobs: readonly JobId[]): Promise<void> {
    for (const id of jobs) {
      const job = await this.#core.store.job(id);
      // The store answers in order: if it has promoted the job since, that is applied after this.
      if (job?.delayed === true && !this.#core.state.jobs.has(id)) this.#core.jobs.stored(job, undefined, new Map());
    }
  }

  /** A job was added to dispatch. */
  inDispatch(job: Job): void {
    if (!waitsInDispatch(job)) return;
    this.#inDispatch.set(job.id, job);
    this.#wakeIn(this.msUntil(job));
  }

  #wakeIn(ms: number): void {
    if (!this.#stopped) this.#alarm.set(now() + Math.min(CHECK_MS, Math.max(0, ms)));
  }

  async #run(): Promise<void> {
    this.#again = true;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#again && !this.#stopped) {
        this.#again = false;
        await this.#clock.measure();
        this.#startInDispatch();
        this.#wakeAt(await this.#promoteDue());
      }
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (!this.#stopped) this.#log.warn({ code }, `cannot start delayed jobs, and tries again: ${message}`);
      this.#wakeIn(RETRY_MS);
    } finally {
      this.#running = false;
    }
  }

  #startInDispatch(): void {
    const due: JobId[] = [];
    let next = Number.POSITIVE_INFINITY;
    for (const [id, job] of this.#inDispatch) {
      const ms = this.msUntil(job);
      if (ms <= 0) due.push(id);
      else next = Math.min(next, ms);
      if (ms <= 0 || !this.#core.state.jobs.has(id)) this.#inDispatch.delete(id);
    }
    if (due.length > 0) this.#core.decide((out) => onJobsDue(this.#core.state, out, due, now()));
    this.#core.publish(due.map((job) => ({ kind: "job-due", job })));
    if (this.#inDispatch.size > 0) this.#wakeIn(next);
  }

  async #promoteDue(): Promise<NextDelayed> {
    for (;;) {
      const next = await this.#core.store.nextDelayed();
      const { current: clock, steady } = this.#clock;
      const due =
        (next.clock ?? Number.POSITIVE_INFINITY) <= clock || (next.steady ?? Number.POSITIVE_INFINITY) <= steady;
      if (!due || this.#stopped) return next;
      const result = await this.#core.commit({ op: "promote", clock, steady, max: AT_ONCE });
      if (result.op !== "promote" || result.jobs.length === 0) return next;
      for (const job of result.jobs) this.#promoted(job);
    }
  }

  #promoted(job: Job): void {
    const { state, jobs } = this.#core;
    // Dispatch knows it if another job depends on it.
    if (state.jobs.has(job.id)) this.#core.decide((out) => onJobsDue(state, out, [job.id], now()));
    else jobs.stored(job, undefined, new Map());
    this.#core.publish([{ kind: "job-due", job: job.id }]);
  }

  #wakeAt({ clock, steady }: NextDelayed): void {
    if (clock !== undefined) this.#wakeIn(clock - this.#clock.current);
    if (steady !== undefined) this.#wakeIn(steady - this.#clock.steady);
    if (this.#core.store.shared) this.#wakeIn(CHECK_MS);
  }
}

// The time by which delayed jobs start, in milliseconds since 1970; in a group, the database's. Two readings differ
// after a clock was set:
//
//   current   the clock now. For jobs with a start time (`at`)
//   steady    the clock at the start of this broker plus the time since. For jobs with `delayMs`: setting the clock
//             forward does not start them early, setting it back does not delay them
//
// If the clock was set back before the broker started, the newest job shows it: it cannot be from the future.

interface ClockSources {
  /** The clock of this machine. */
  readonly wall: () => number;
  /** Never set. Does not advance while the machine sleeps. */
  readonly monotonic: () => number;
  /** Never set. Advances while the machine sleeps. Undefined if the system has no such clock. */
  readonly boot: () => number | undefined;
  /** The clock of the store, if brokers share it. */
  readonly store?: () => Promise<number>;
}

/** Shorter times are within the difference between two readings. */
const MIN_SLEEP_MS = 2_000;

export class StoreClock {
  readonly #sources: ClockSources;
  /** The time that the monotonic clock has missed. */
  #steadyOffset = 0;
  #currentOffset = 0;
  #bootOffset = 0;

  private constructor(sources: ClockSources) {
    this.#sources = sources;
  }

  static async of(store: Store, system: ClockSources = SYSTEM_CLOCKS): Promise<StoreClock> {
    const { shared, group } = store;
    if (shared && group !== undefined) return StoreClock.open({ ...system, store: () => group.clock() });
    return StoreClock.open(system, (await store.jobs({ limit: 1 })).jobs[0]?.created);
  }

  /** `newestJob`: when the newest job was created, by this machine's clock. */
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
    // The answer of the store is older than its arrival. So jobs may start late by the difference, but never early.
    const current = store === undefined ? wall() : await store();
    this.#currentOffset = current - monotonic();
  }

  get current(): number {
    return this.#sources.store === undefined ? this.#sources.wall() : this.#sources.monotonic() + this.#currentOffset;
  }

  /** The machine may have slept since the last reading. */
  get steady(): number {
    const passed = this.#sources.monotonic();
    const boot = this.#sources.boot();
    const slept = boot === undefined ? 0 : boot - passed - this.#bootOffset;
    if (slept >= MIN_SLEEP_MS) {
      this.#bootOffset += slept;
      this.#steadyOffset += slept;
    }
    return passed + this.#steadyOffset;
  }
}

/** The clocks of this machine. */
const SYSTEM_CLOCKS: ClockSources = {
  wall: Date.now,
  monotonic: now,
  // Other systems derive the uptime from the clock that can be set.
  boot: () => (process.platform === "linux" ? uptime() * 1_000 : undefined),
};
