/**
 * What keeps tasks from being assigned.
 *
 * The named limits: their rules in the store, and their use. Dispatch enforces them; in a group, the store.
 *
 * Halts of this broker, and paused pools. Tasks are assigned again when the last reason is gone. Requests are not
 * affected.
 */
import { now } from "../base/clock.js";
import { LaboroError } from "../base/errors.js";
import { loadLimits, onHalt, onLimitRule, onPoolPaused, onResume, type State } from "../dispatch/index.js";
import { finishedCount } from "../model/job.js";
import { LIMIT_BUCKET, type LimitRule, type LimitStart, type LimitUse, ruleFrom } from "../model/limit.js";
import type { Core } from "./core.js";
import type { Decide } from "./pending-requests.js";

/** Jobs listed as waiting for a limit. */
export const LISTED_JOBS = 10;

export interface LimitInfo extends Omit<LimitUse, "leased"> {
  /** Tasks that no worker has, of jobs that are neither held nor blocked. */
  readonly waiting: number;
  /** The jobs of these tasks, oldest first; at most LISTED_JOBS. */
  readonly jobs: readonly number[];
  readonly jobCount: number;
}

interface WaitingTasks {
  tasks: number;
  readonly jobs: number[];
  jobCount: number;
}

export class NamedLimits {
  readonly #core: Core;
  #reading: Promise<void> = Promise.resolve();

  constructor(core: Core) {
    this.#core = core;
  }

  /** Before jobs are added to dispatch. */
  async open(starts: readonly LimitStart[] = []): Promise<void> {
    loadLimits(this.#core.state, await this.#stored(), starts, now());
  }

  /** When it resolves, the rule is durable and in effect here. */
  async set(name: string, rule: LimitRule): Promise<void> {
    await this.#core.put(LIMIT_BUCKET, name, JSON.stringify(rule));
    this.#apply(name, rule);
  }

  async remove(name: string): Promise<void> {
    await this.requireKnown([name]);
    await this.#core.put(LIMIT_BUCKET, name, null);
    this.#apply(name, undefined);
  }

  /** Applies the rules that other brokers have set. One read at a time, so that an older answer is not applied last. */
  refresh(): Promise<void> {
    this.#reading = this.#reading.catch(() => {}).then(() => this.#refresh());
    return this.#reading;
  }

  async requireKnown(names: readonly string[]): Promise<void> {
    const unknown = (): string | undefined =>
      names.find((name) => this.#core.state.limits.get(name)?.rule === undefined);
    // Another broker may just have set it.
    if (unknown() !== undefined && this.#core.store.shared) await this.refresh();
    const name = unknown();
    if (name === undefined) return;
    const known = this.#names();
    const there = known.length === 0 ? "there are none" : `the limits are ${known.slice(0, 20).join(", ")}`;
    throw new LaboroError("LABORO_NO_SUCH_LIMIT", `there is no limit ${name}; ${there}. laboro limit set creates one`);
  }

  /** In order of their names. */
  async list(): Promise<LimitInfo[]> {
    const { state, store } = this.#core;
    const names = this.#names();
    const uses = new Map(
      (store.shared ? await store.group?.limitUse(names) : undefined)?.map((use) => [use.name, use]),
    );
    const waiting = this.waitingTasks();
    return names.flatMap((name) => {
      const limit = state.limits.get(name);
      if (limit?.rule === undefined) return [];
      const here = { running: limit.running, starts: limit.startCount, nextMs: limit.timer && limit.timer.at - now() };
      const { running, starts, nextMs } = uses.get(name) ?? here;
      const { tasks = 0, jobs = [], jobCount = 0 } = waiting.get(name) ?? {};
      // Tasks at other brokers do not wait here.
      const elsewhere = running - limit.running;
      const full = limit.rule.rate !== undefined && starts >= limit.rule.rate.starts;
      return {
        ...{ name, rule: limit.rule, running, starts, waiting: Math.max(0, tasks - elsewhere), jobs, jobCount },
        ...(full && nextMs !== undefined ? { nextMs: Math.max(0, nextMs) } : {}),
      };
    });
  }

  /** Tasks of this broker's jobs that no worker here has, by limit. */
  waitingTasks(): Map<string, WaitingTasks> {
    const found = new Map<string, WaitingTasks>();
    if (this.#core.state.limits.size === 0) return found;
    for (const { id, job, held, delayed, blockedBy, assigned } of this.#core.state.jobs.values()) {
      if (job.limits.named === undefined || held || delayed || blockedBy.size > 0) continue;
      const counters = this.#core.jobs.countersOf(id) ?? job.counters;
      const tasks = job.count - finishedCount(counters) - assigned;
      if (tasks <= 0) continue;
      for (const name of job.limits.named) {
        const sum = found.get(name) ?? { tasks: 0, jobs: [], jobCount: 0 };
        found.set(name, sum);
        sum.tasks += tasks;
        sum.jobCount++;
        if (sum.jobs.length < LISTED_JOBS) sum.jobs.push(id);
      }
    }
    return found;
  }

  #names(): string[] {
    const { limits } = this.#core.state;
    return [...limits.values()].flatMap(({ name, rule }) => (rule === undefined ? [] : [name])).sort();
  }

  async #stored(): Promise<Map<string, LimitRule>> {
    const stored = await this.#core.store.keyValues(LIMIT_BUCKET);
    return new Map(stored.map(({ key, value }) => [key, ruleFrom(value)]));
  }

  async #refresh(): Promise<void> {
    const stored = await this.#stored();
    for (const [name, rule] of stored) this.#apply(name, rule);
    for (const name of this.#names()) if (!stored.has(name)) this.#apply(name, undefined);
  }

  #apply(name: string, rule: LimitRule | undefined): void {
    const { state } = this.#core;
    if (JSON.stringify(state.limits.get(name)?.rule) === JSON.stringify(rule)) return;
    this.#core.decide((out) => onLimitRule(state, out, name, rule, now()));
  }
}

const TEXTS = {
  commits: "its store cannot be written",
  lease: "its lease on the shared store is about to end",
  maintenance: "it is drained, until laboro drain --broker --off or a restart",
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

/** Whether this broker is being drained: it assigns nothing new, and redirects peers to other brokers if it can. */
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
