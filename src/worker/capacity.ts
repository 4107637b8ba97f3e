/** The slots, resources and devices of a worker, and which of them are in use. */
import { LaboroError } from "../base/errors.js";
import { ALL, neededOf, type Resources } from "../model/recipe.js";
import type { GpuVariable } from "./machine.js";

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

const CUDA = "CUDA_VISIBLE_DEVICES";

interface GpuOptions {
  readonly gpuVariable?: GpuVariable;
  /** Tasks that need no device see none. */
  readonly hides?: boolean;
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
  readonly #gpuVariable: GpuVariable;

  /** Throws LABORO_BAD_INPUT if the environment contradicts the total. */
  constructor(total: Resources, env: NodeJS.ProcessEnv = {}, { gpuVariable = CUDA, hides = true }: GpuOptions = {}) {
    this.#total = total;
    this.#gpuVariable = gpuVariable;
    for (const name in total) this.#free[name] = millionths(total[name] ?? 0);
    this.#devices = devicesOf(total, env, gpuVariable);
    this.hiddenDevicesEnv = hides && this.#devices.has("gpu") ? { [gpuVariable]: "" } : {};
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

  /** Every task needs one. */
  get hasFreeSlot(): boolean {
    return this.#freeSlots.length > 0;
  }

  fits(needs: Resources): boolean {
    if (!this.hasFreeSlot) return false;
    for (const name in needs) {
      const need = this.#need(needs, name);
      if (need === undefined || millionths(need) > (this.#free[name] ?? 0)) return false;
      // A sufficient sum is not always a sufficient device: two halves of two devices are no whole one.
      if (this.#devices.get(name)?.find(need) === undefined && this.#devices.has(name)) return false;
    }
    return true;
  }

  /** For needs that fit. */
  acquire(given: Resources): AcquiredSlot {
    const shares = new Map<Devices, DeviceShare>();
    const env: Record<string, string> = {};
    const needs: Record<string, number> & { slots: number } = { ...given };
    for (const name in given) {
      const need = this.#need(given, name) ?? 0;
      needs[name] = need;
      this.#free[name] = (this.#free[name] ?? 0) - millionths(need);
      const devices = this.#devices.get(name);
      const share = devices?.find(need);
      if (devices === undefined || share === undefined || share.size === 0) continue;
      devices.acquire(share);
      shares.set(devices, share);
      env[envVariableOf(name)] = devices.nameList(share);
      if (name === "gpu") env[this.#gpuVariable] = devices.nameList(share);
    }
    const acquired: AcquiredResources = { needs, shares, slot: this.#freeSlots.pop() ?? 0, env };
    this.#usedSlots.add(acquired.slot);
    return acquired;
  }

  /** In this worker's amounts; undefined if all of a resource is requested and it has none. */
  #need(needs: Resources, name: string): number | undefined {
    const need = neededOf(needs[name] ?? 0, this.#total[name] ?? 0);
    return need === 0 && needs[name] === ALL ? undefined : need;
  }

  release(acquired: AcquiredSlot): void {
    const { needs, shares, slot } = acquired as AcquiredResources;
    for (const name in needs) this.#free[name] = (this.#free[name] ?? 0) + millionths(needs[name] ?? 0);
    for (const [devices, share] of shares) devices.release(share);
    this.#usedSlots.delete(slot);
    if (slot < this.#total.slots) this.#freeSlots.push(slot);
  }
}

// The single devices of a resource: `gpu=2` is two devices, and the environment of a task names those that it may use.
// A need below 1 is a share of one device, whose rest other tasks may use. 1.5 is one whole device and half of another.

/** Amounts are counted in millionths, as whole numbers: ten tasks of 0.1 fit into 1. */
const MILLIONTHS = 1_000_000;
const millionths = (amount: number): number => Math.round(amount * MILLIONTHS);

/** A resource with more is an amount, such as megabytes, and not a set of devices. */
const MAX_DEVICES = 1024;

/** How much is taken of each device, by device number, in millionths. */
type DeviceShare = ReadonlyMap<number, number>;

export class Devices {
  /** As the environment of tasks names them: `0`, `1`, or the names in this worker's own CUDA_VISIBLE_DEVICES. */
  readonly names: readonly string[];
  readonly #free: number[];

  /** `total` devices; the last may be a part of one. */
  constructor(total: number, names?: readonly string[]) {
    const count = Math.ceil(total);
    this.names = (names ?? Array.from({ length: count }, (_, i) => String(i))).slice(0, count);
    this.#free = this.names.map((_, i) => Math.min(MILLIONTHS, millionths(total) - i * MILLIONTHS));
  }

  /** The shares that would be taken for this need; undefined if it does not fit now. */
  find(need: number): DeviceShare | undefined {
    const share = new Map<number, number>();
    for (let whole = Math.floor(millionths(need) / MILLIONTHS); whole > 0; whole--) {
      const at = this.#free.findIndex((free, i) => free === MILLIONTHS && !share.has(i));
      if (at < 0) return undefined;
      share.set(at, MILLIONTHS);
    }
    const part = millionths(need) % MILLIONTHS;
    if (part === 0) return share;
    const at = this.#bestFit(part, share);
    return at === undefined ? undefined : share.set(at, part);
  }

  /** The device with the smallest free part that suffices, so that whole devices stay whole. */
  #bestFit(part: number, taken: DeviceShare): number | undefined {
    let best: number | undefined;
    for (const [at, free] of this.#free.entries()) {
      if (free < part || taken.has(at)) continue;
      if (best === undefined || free < (this.#free[best] ?? 0)) best = at;
    }
    return best;
  }

  acquire(share: DeviceShare): void {
    for (const [at, part] of share) this.#free[at] = (this.#free[at] ?? 0) - part;
  }

  release(share: DeviceShare): void {
    for (const [at, part] of share) this.#free[at] = (this.#free[at] ?? 0) + part;
  }

  /** As `CUDA_VISIBLE_DEVICES` has them. */
  nameList(share: DeviceShare): string {
    return [...share.keys()]
      .sort((a, b) => a - b)
      .map((at) => this.names[at])
      .join(",");
  }
}

/**
 * The devices of a worker, by resource. A worker whose own environment has such a variable assigns those. Throws
 * LABORO_BAD_INPUT if it has fewer of them than its options say.
 */
export function devicesOf(
  total: Resources,
  env: NodeJS.ProcessEnv,
  gpuVariable: GpuVariable = CUDA,
): Map<string, Devices> {
  const devices = new Map<string, Devices>();
  for (const [name, amount] of Object.entries(total)) {
    if (name === "slots" || name === "mem" || amount <= 0 || amount > MAX_DEVICES) continue;
    devices.set(name, new Devices(amount, name === "gpu" ? visibleDevices(amount, gpuVariable, env) : undefined));
  }
  return devices;
}

function visibleDevices(amount: number, variable: GpuVariable, env: NodeJS.ProcessEnv): readonly string[] | undefined {
  const visible = env[variable];
  if (visible === undefined || visible.trim() === "") return undefined;
  const names = visible.split(",").map((name) => name.trim());
  if (names.length >= amount) return names;
  throw new LaboroError(
    "LABORO_BAD_INPUT",
    `gpu=${amount} was given, but ${variable} lets this worker see only ${names.length}: ${visible}`,
  );
}

/** `LABORO_RESOURCE_GPU` */
const envVariableOf = (resource: string): string =>
  `LABORO_RESOURCE_${resource.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}`;
