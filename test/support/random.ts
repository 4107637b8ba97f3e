/** Numbers that look random and are the same for the same seed (mulberry32). */
export class SeededRandom {
  readonly seed: number;
  #state: number;

  /** LABORO_FAULT_SEED repeats a run that failed. */
  constructor(seed = Number(process.env.LABORO_FAULT_SEED ?? Date.now() % 1_000_000)) {
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
