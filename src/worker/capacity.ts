/** The slots, resources and devices of a worker, and which of them are in use. */
import type { Resources } from "../model/recipe.js";
import { type DeviceShare, type Devices, devicesOf, envVariableOf, millionths } from "./devices.js";

/** The slot in which a task runs. */
export interface AcquiredSlot {
  readonly slot: number;
  /** Variables for its environment that name its devices. */
  readonly env: Readonly<Record<string, string>>;
}

interface AcquiredResources extends AcquiredSlot {
  readonly needs: Resources;
  readonly shares: ReadonlyMap<Devices, DeviceShare>;
}

export class Capacity {
  #total: Resources;
  /** For the environment of tasks without a device of their own: it hides the devices of other tasks. */
  readonly hiddenDevicesEnv: Readonly<Record<string, string>>;
  readonly #free: Record<string, number> = {};
  readonly #devices: ReadonlyMap<string, Devices>;
  /** Slot numbers not in use, the lowest last. */
  readonly #freeSlots: number[];
  readonly #usedSlots = new Set<number>();

  /** Throws LABORO_BAD_INPUT where the environment contradicts the total. */
  constructor(total: Resources, env: NodeJS.ProcessEnv = {}) {
    this.#total = total;
    for (const name in total) this.#free[name] = millionths(total[name] ?? 0);
    this.#devices = devicesOf(total, env);
    this.hiddenDevicesEnv = this.#devices.has("gpu") ? { CUDA_VISIBLE_DEVICES: "" } : {};
    this.#freeSlots = Array.from({ length: total.slots }, (_, i) => total.slots - 1 - i);
  }

  get total(): Resources {
    return this.#total;
  }

  /** A task in a slot that no longer exists runs there to its end. */
  setSlots(count: number): void {
    const before = this.#total.slots;
    this.#total = { ...this.#total, slots: count };
    this.#free.slots = (this.#free.slots ?? 0) + millionths(count - before);
    const kept = this.#freeSlots.filter((slot) => slot < count);
    const added = Array.from({ length: Math.max(0, count - before) }, (_, i) => before + i);
    const more = added.filter((slot) => !this.#usedSlots.has(slot));
    this.#freeSlots.splice(0, this.#freeSlots.length, ...[...kept, ...more].sort((a, b) => b - a));
  }

  fits(needs: Resources): boolean {
    if (this.#freeSlots.length === 0) return false;
    for (const name in needs) {
      const need = needs[name] ?? 0;
      if (millionths(need) > (this.#free[name] ?? 0)) return false;
      // A sufficient sum is not always a sufficient device: two halves of two devices are no whole one.
      if (this.#devices.get(name)?.find(need) === undefined && this.#devices.has(name)) return false;
    }
    return true;
  }

  /** For needs that fit. */
  acquire(needs: Resources): AcquiredSlot {
    const shares = new Map<Devices, DeviceShare>();
    const env: Record<string, string> = {};
    for (const name in needs) {
      const need = needs[name] ?? 0;
      this.#free[name] = (this.#free[name] ?? 0) - millionths(need);
      const devices = this.#devices.get(name);
      const share = devices?.find(need);
      if (devices === undefined || share === undefined || share.size === 0) continue;
      devices.acquire(share);
      shares.set(devices, share);
      env[envVariableOf(name)] = devices.nameList(share);
      if (name === "gpu") env.CUDA_VISIBLE_DEVICES = devices.nameList(share);
    }
    const acquired: AcquiredResources = { needs, shares, slot: this.#freeSlots.pop() ?? 0, env };
    this.#usedSlots.add(acquired.slot);
    return acquired;
  }

  release(acquired: AcquiredSlot): void {
    const { needs, shares, slot } = acquired as AcquiredResources;
    for (const name in needs) this.#free[name] = (this.#free[name] ?? 0) + millionths(needs[name] ?? 0);
    for (const [devices, share] of shares) devices.release(share);
    this.#usedSlots.delete(slot);
    if (slot < this.#total.slots) this.#freeSlots.push(slot);
  }
}
