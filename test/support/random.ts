import { isLongRun } from "./scale.js";

/**
 * The seed of all random tests. A usual run takes the same one every time, so that it passes or fails by what was changed. Longer runs
 * take another one each; LABORO_TEST_SEED repeats one that failed.
 */
export const SEED = Number(process.env.LABORO_TEST_SEED ?? (isLongRun ? Date.now() % 1_000_000 : 1));

/** Numbers that look random and are the same for the same seed (mulberry32). */
export class SeededRandom {
  readonly seed: number;
  #state: number;

  constructor(seed = SEED) {
    this.seed = seed;
    this.#state = seed >>> 0;
  }

  /** From 0 up to, not including, 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `least` up to and including `most`. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  /** One number from each of `count` equal parts of 0 to `below`: spread out, in rising order. */
  spread(count: number, below: number): number[] {
    const part = below / count;
    return Array.from({ length: count }, (_, i) => Math.floor((i + this.next()) * part));
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    for (let i = 0; i < length; i++) bytes[i] = this.between(0, 255);
    return bytes;
  }
}

/** What is given with some of its bytes changed, cut out or put in; or no such thing at all. */
export function mutation(random: SeededRandom, good: Uint8Array): Uint8Array {
  if (random.next() < 0.2 || good.length === 0) return random.bytes(random.between(0, 300));
  let bytes = Buffer.from(good);
  for (let changes = random.between(1, 4); changes > 0; changes--) {
    const at = random.between(0, bytes.length - 1);
    const kind = random.between(0, 3);
    const before = bytes.subarray(0, at);
    if (kind === 0) bytes[at] = random.between(0, 255);
    else if (kind === 1) bytes = Buffer.concat([before, bytes.subarray(at + random.between(1, 8))]);
    else if (kind === 2) bytes = Buffer.concat([before, random.bytes(random.between(1, 8)), bytes.subarray(at)]);
    else bytes = Buffer.concat([before, Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff]), bytes.subarray(at)]);
    if (bytes.length === 0) break;
  }
  return bytes;
}
