/**
 * When a worker's heartbeats have stopped. The protocol does not say how far apart they are: the original's programs set 120 s. So each
 * worker's own rhythm is measured, and only one that has a rhythm can lose it.
 */
export interface Patience {
  /** What is assumed until a worker's rhythm is known. */
  readonly expectedMs: number;
  /** No worker is given up sooner than this. */
  readonly leastMs: number;
}

export const PATIENCE: Patience = { expectedMs: 120_000, leastMs: 10_000 };
/** So many gaps make a rhythm. */
const GAPS_KNOWN = 4;
const GAPS_KEPT = 8;
const MISSED = 3;

export class Rhythm {
  readonly #patience: Patience;
  #heard: number;
  #pinged: number | undefined;
  readonly #gaps: number[] = [];

  constructor(now: number, patience: Patience = PATIENCE) {
    this.#patience = patience;
    this.#heard = now;
  }

  /** Anything came. */
  heard(now: number): void {
    this.#heard = now;
  }

  pinged(now: number): void {
    if (this.#pinged !== undefined) {
      this.#gaps.push(now - this.#pinged);
      if (this.#gaps.length > GAPS_KEPT) this.#gaps.shift();
    }
    this.#pinged = now;
    this.#heard = now;
  }

  stopped(now: number): boolean {
    if (this.#gaps.length === 0) return false;
    const { expectedMs, leastMs } = this.#patience;
    const gap = this.#gaps.length < GAPS_KNOWN ? expectedMs : Math.max(...this.#gaps);
    return now - this.#heard > Math.max(leastMs, MISSED * gap);
  }
}
