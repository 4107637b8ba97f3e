/** The jobs of a batch system. After each query there is a pause in proportion to its duration. */
import { now as monotonicNow } from "../../base/clock.js";
import { type Allocation, type Allocator, isLive } from "../../model/allocation.js";
import type { BatchError, BatchManager, QueueEntry } from "./batch-manager.js";
import { type AllocationRules, recordAnswering, recordTrouble } from "./decide.js";

/** The pause before the next query, as a multiple of the duration of the last one. */
const COST_FACTOR = 20;

/** How long each live allocation has been seen in its state, by a clock that is never set. */
export class StateAges {
  readonly #seen = new Map<string, { readonly state: Allocation["state"]; readonly since: number }>();

  stateMs(allocator: string, { number, state }: Allocation, now: number): number {
    const seen = this.#seen.get(`${allocator}.${number}`);
    return seen?.state === state ? now - seen.since : 0;
  }

  record({ name, state: { allocations } }: Allocator, now: number): void {
    for (const one of allocations) {
      const key = `${name}.${one.number}`;
      if (!isLive(one)) this.#seen.delete(key);
      else if (this.#seen.get(key)?.state !== one.state) this.#seen.set(key, { state: one.state, since: now });
    }
  }

  clear(): void {
    this.#seen.clear();
  }
}

export class QueueWatch {
  readonly manager: BatchManager;
  /** Why the last query failed. */
  error: BatchError | undefined;
  readonly #rules: AllocationRules;
  readonly #ages = new StateAges();
  #nextLook = 0;
  #since: number | undefined;

  constructor(manager: BatchManager, rules: AllocationRules) {
    this.manager = manager;
    this.#rules = rules;
  }

  /** How long all queries have succeeded. */
  get watchedMs(): number {
    return this.#since === undefined ? 0 : monotonicNow() - this.#since;
  }

  /** How long the queries have shown an allocation in its state. */
  stateMs(allocator: string, one: Allocation): number {
    return this.#ages.stateMs(allocator, one, monotonicNow());
  }

  /** Records the states of an allocator's allocations after a query. */
  record(allocator: Allocator): void {
    if (this.#since !== undefined) this.#ages.record(allocator, monotonicNow());
  }

  /** From now on nothing is watched. */
  interrupt(): void {
    this.#since = undefined;
    this.#ages.clear();
  }

  /** Something was changed: the next query is due. */
  hurry(): void {
    this.#nextLook = 0;
  }

  /** The jobs of these allocators; undefined if the query is not due, or failed. */
  async look(allocators: readonly Allocator[]): Promise<readonly QueueEntry[] | undefined> {
    const live = allocators.filter(({ state }) => state.allocations.some(isLive));
    if (live.length === 0) this.#answered(allocators);
    if (live.length === 0 || monotonicNow() < this.#nextLook) return undefined;
    const begun = monotonicNow();
    try {
      const jobs = await this.manager.list(live.map(({ name }) => name));
      this.#since ??= monotonicNow();
      this.#answered(allocators);
      return jobs;
    } catch (cause) {
      this.error = cause as BatchError;
      this.interrupt();
      for (const { state } of allocators) recordTrouble(state, this.#rules, Date.now(), this.error, true);
      return undefined;
    } finally {
      const { pollMs, maxTroubleMs } = this.#rules;
      const cost = Math.min(maxTroubleMs, (monotonicNow() - begun) * COST_FACTOR);
      this.#nextLook = begun + Math.max(pollMs * 0.9, cost);
    }
  }

  #answered(allocators: readonly Allocator[]): void {
    this.error = undefined;
    for (const { state } of allocators) if (state.problem?.unseen) recordAnswering(state, Date.now());
  }
}
