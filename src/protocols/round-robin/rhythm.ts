/**
 * When a worker's heartbeats have stopped. The protocol does not say how far apart they are: the original's programs set 120 s. So each
 * worker's own rhythm is measured, and only one that has a rhythm can lose it.
 */
const EXPECTED_MS = 120_000;
/** So many gaps make a rhythm; before, the usual one is assumed. */
const GAPS_KNOWN = 4;
const GAPS_KEPT = 8;
const MISSED = 3;
const LEAST_MS = 10_000;

export class Rhythm {
  #heard: number;
  #pinged: number | undefined;
  readonly #gaps: number[] = [];

  constructor(now: number) {
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
    const gap = this.#gaps.length < GAPS_KNOWN ? EXPECTED_MS : Math.max(...this.#gaps);
    return now - this.#heard > Math.max(LEAST_MS, MISSED * gap);
  }
}
