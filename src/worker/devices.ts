/**
 * The single devices behind a resource: `gpu=2` is two of them, and the environment of a task names those it may use. A need
 * below 1 is a share of one device, whose rest other tasks may use. Of a need such as 1.5 the whole part is whole devices.
 */
import { LaboroError } from "../base/errors.js";
import type { Resources } from "../model/recipe.js";

/** Amounts are counted in millionths, as whole numbers: ten tasks of 0.1 fit into 1. */
export const MILLIONTHS = 1_000_000;
export const millionths = (amount: number): number => Math.round(amount * MILLIONTHS);

/** A resource with more is an amount, such as megabytes, and not a set of devices. */
const MAX_DEVICES = 1024;

/** How much is taken of each device, by device number, in millionths. */
export type DeviceShare = ReadonlyMap<number, number>;

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
 * The devices of a worker, by resource. A worker that was itself started with CUDA_VISIBLE_DEVICES hands out those. Throws
 * LABORO_BAD_INPUT where it has fewer of them than it says.
 */
export function devicesOf(total: Resources, env: NodeJS.ProcessEnv): Map<string, Devices> {
  const devices = new Map<string, Devices>();
  for (const [name, amount] of Object.entries(total)) {
    if (name === "slots" || amount <= 0 || amount > MAX_DEVICES) continue;
    devices.set(
      name,
      new Devices(amount, name === "gpu" ? visibleDevices(amount, env.CUDA_VISIBLE_DEVICES) : undefined),
    );
  }
  return devices;
}

function visibleDevices(amount: number, visible: string | undefined): readonly string[] | undefined {
  if (visible === undefined || visible.trim() === "") return undefined;
  const names = visible.split(",").map((name) => name.trim());
  if (names.length >= amount) return names;
  throw new LaboroError(
    "LABORO_BAD_INPUT",
    `gpu=${amount} was given, but CUDA_VISIBLE_DEVICES lets this worker see only ${names.length}: ${visible}`,
  );
}

/** `LABORO_RESOURCE_GPU` */
export const envVariableOf = (resource: string): string =>
  `LABORO_RESOURCE_${resource.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}`;
