/** What a worker has, what is in use of it, and which of its slots and devices are taken. */
import type { Amounts } from "../model/recipe.js";
import { type Devices, devicesOf, millionths, type Share, variableOf } from "./devices.js";

/** Where a task runs. */
export interface Place {
  readonly slot: number;
  /** For its environment: which devices are its own. */
  readonly env: Readonly<Record<string, string>>;
}

interface Taken extends Place {
  readonly needs: Amounts;
  readonly shares: ReadonlyMap<Devices, Share>;
}

export class Room {
  #total: Amounts;
  /** In the environment of tasks that have no device of their own: they do not see those of others. */
  readonly hidden: Readonly<Record<string, string>>;
  readonly #free: Record<string, number> = {};
  readonly #devices: ReadonlyMap<string, Devices>;
  /** Slot numbers not in use, the lowest last. */
  readonly #slots: number[];
  readonly #inUse = new Set<number>();

  /** Throws LABORO_BAD_INPUT where the environment contradicts the total. */
  constructor(total: Amounts, env: NodeJS.ProcessEnv = {}) {
    this.#total = total;
    for (const name in total) this.#free[name] = millionths(total[name] ?? 0);
    this.#devices = devicesOf(total, env);
    this.hidden = this.#devices.has("gpu") ? { CUDA_VISIBLE_DEVICES: "" } : {};
    this.#slots = Array.from({ length: total.slots }, (_, i) => total.slots - 1 - i);
  }

  get total(): Amounts {
    return this.#total;
  }

  /** What runs in a slot that there is no more goes on there to its end. */
  setSlots(count: number): void {
    const before = this.#total.slots;
    this.#total = { ...this.#total, slots: count };
    this.#free.slots = (this.#free.slots ?? 0) + millionths(count - before);
    const kept = this.#slots.filter((slot) => slot < count);
    const added = Array.from({ length: Math.max(0, count - before) }, (_, i) => before + i);
    const more = added.filter((slot) => !this.#inUse.has(slot));
    this.#slots.splice(0, this.#slots.length, ...[...kept, ...more].sort((a, b) => b - a));
  }

  fits(needs: Amounts): boolean {
    if (this.#slots.length === 0) return false;
    for (const name in needs) {
      const need = needs[name] ?? 0;
      if (millionths(need) > (this.#free[name] ?? 0)) return false;
      // Enough in all need not be enough in one piece: two halves of two devices are no whole one.
      if (this.#devices.get(name)?.find(need) === undefined && this.#devices.has(name)) return false;
    }
    return true;
  }

  /** For needs that fit. */
  take(needs: Amounts): Place {
    const shares = new Map<Devices, Share>();
    const env: Record<string, string> = {};
    for (const name in needs) {
      const need = needs[name] ?? 0;
      this.#free[name] = (this.#free[name] ?? 0) - millionths(need);
      const devices = this.#devices.get(name);
      const share = devices?.find(need);
      if (devices === undefined || share === undefined || share.size === 0) continue;
      devices.take(share);
      shares.set(devices, share);
      env[variableOf(name)] = devices.shown(share);
      if (name === "gpu") env.CUDA_VISIBLE_DEVICES = devices.shown(share);
    }
    const taken: Taken = { needs, shares, slot: this.#slots.pop() ?? 0, env };
    this.#inUse.add(taken.slot);
    return taken;
  }

  give(place: Place): void {
    const { needs, shares, slot } = place as Taken;
    for (const name in needs) this.#free[name] = (this.#free[name] ?? 0) + millionths(needs[name] ?? 0);
    for (const [devices, share] of shares) devices.give(share);
    this.#inUse.delete(slot);
    if (slot < this.#total.slots) this.#slots.push(slot);
  }
}
