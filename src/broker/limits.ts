/** The named limits: their rules in the store, and their use. Dispatch enforces them; in a group, the store. */
import { now } from "../base/clock.js";
import { LaboroError } from "../base/errors.js";
import { loadLimits, onLimitRule } from "../dispatch/index.js";
import { finishedCount } from "../model/job.js";
import { LIMIT_BUCKET, type LimitRule, type LimitStart, type LimitUse, ruleFrom } from "../model/limit.js";
import type { Core } from "./core.js";

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
    throw new LaboroError("LABORO_NO_SUCH_LIMIT", `there is no limit ${name}; ${there}. laboro limit set makes one`);
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
