/** What limits leave, as plainly as it can be said: everything is counted again for each question. */
import type { JobId, TaskRangeId } from "../../src/model/ids.js";
import {
  LIMIT_BUCKET,
  type LimitRule,
  type LimitUse,
  limitKeys,
  roomLeft,
  ruleFrom,
  startTime,
} from "../../src/model/limit.js";
import { sizeOf } from "../../src/model/ranges.js";
import type { LeaseLimit, Write } from "../../src/model/store.js";
import type { ModelWorld } from "./model-store.js";

type Lease = Extract<Write, { op: "lease" }>;

export class ModelLimits {
  readonly #world: ModelWorld;
  /** The limits of task ranges, by their ids; of those that are gone, too. */
  readonly #keys = new Map<TaskRangeId, readonly string[]>();
  #starts: { readonly name: string; readonly at: number; count: number }[] = [];

  constructor(world: ModelWorld) {
    this.#world = world;
  }

  /** At most how many of the tasks that a lease asks for may be granted, and which limit says so. */
  most(write: Lease, now: number): { readonly max: number; readonly limited?: LeaseLimit } {
    let max = write.max;
    let limited: LeaseLimit | undefined;
    if (!this.#world.shared) return { max };
    const { maxRunning = write.maxRunning } = this.#world.jobs.get(write.job)?.job.limits ?? {};
    // The broker has not heard of it.
    if (maxRunning !== undefined && write.maxRunning === undefined) return { max: 0, limited: {} };
    for (const use of this.uses(limitKeys(write.job, write), now, maxRunning)) {
      const room = Math.max(0, roomLeft(use));
      if (room >= max) continue;
      max = room;
      const byRate =
        use.starts > 0 && (use.rule.rate?.starts ?? Number.POSITIVE_INFINITY) - use.starts - use.leased <= room;
      limited = {
        ...(use.name.startsWith("#") ? {} : { limit: use.name }),
        ...(byRate && use.nextMs !== undefined ? { nextMs: use.nextMs } : {}),
      };
    }
    return limited === undefined ? { max } : { max, limited };
  }

  uses(names: readonly string[], now: number, maxRunning?: number): LimitUse[] {
    return names.map((name) => {
      const kept = this.#world.kept(LIMIT_BUCKET).find(({ key }) => key === name);
      const own: LimitRule = name.startsWith("#") && maxRunning !== undefined ? { running: maxRunning } : {};
      const rule = kept === undefined ? own : ruleFrom(kept.value);
      let running = 0;
      let leased = 0;
      for (const [id, { taskRange, epoch }] of this.#world.taskRanges) {
        if (epoch === undefined || this.#keys.get(id)?.includes(name) !== true) continue;
        const results = this.#world.jobs.get(taskRange.job)?.results;
        let tasks = sizeOf(taskRange);
        for (let at = taskRange.first; at <= taskRange.last; at++) if (results?.has(at) === true) tasks--;
        if (taskRange.worker === undefined) leased += tasks;
        else running += tasks;
      }
      const { intervalMs = 0 } = rule.rate ?? {};
      const recent = this.#starts.filter((start) => start.name === name && start.at + intervalMs > now);
      const starts = recent.reduce((sum, { count }) => sum + count, 0);
      const oldest = Math.min(...recent.map(({ at }) => at));
      return { name, rule, running, leased, starts, ...(starts > 0 ? { nextMs: oldest + intervalMs - now } : {}) };
    });
  }

  leased(write: Lease, ids: readonly TaskRangeId[]): void {
    const keys = limitKeys(write.job, write);
    for (const id of ids) this.#keys.set(id, keys);
  }

  /** The job has a limit of its own from now on: what brokers have of it counts. */
  limited(job: JobId): void {
    for (const [id, { taskRange, epoch }] of this.#world.taskRanges) {
      const keys = this.#keys.get(id) ?? [];
      if (taskRange.job === job && epoch !== undefined) this.#keys.set(id, [...new Set([...keys, `#${job}`])]);
    }
  }

  /** `to` has the limits of `from`. */
  copied(from: TaskRangeId, to: readonly TaskRangeId[]): void {
    const keys = this.#keys.get(from);
    if (keys !== undefined) for (const id of to) this.#keys.set(id, keys);
  }

  started(names: readonly string[], count: number, at: number): void {
    for (const { name, rule } of this.uses(names, at)) {
      if (rule.rate === undefined) continue;
      const { intervalMs } = rule.rate;
      this.#starts = this.#starts.filter((start) => start.name !== name || start.at + intervalMs > at);
      const start = { name, at: startTime(rule.rate, at), count };
      const same = this.#starts.find((other) => other.name === name && other.at === start.at);
      if (same === undefined) this.#starts.push(start);
      else same.count += count;
    }
  }

  /** As one broker recovers them. */
  get starts(): readonly { readonly name: string; readonly at: number; readonly count: number }[] {
    return [...this.#starts].sort((a, b) => a.at - b.at);
  }
}
