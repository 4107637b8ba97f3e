/**
 * When a worker's heartbeats have stopped. The protocol does not say how far apart they are: the original's programs set 120 s. So each
 * worker's own rhythm is measured, and only one that has a rhythm can lose it.
 */
export interface HeartbeatLimits {
  /** What is assumed until a worker's rhythm is known. */
  readonly defaultIntervalMs: number;
  /** No worker is given up sooner than this. */
  readonly minTimeoutMs: number;
}

export const HEARTBEAT_LIMITS: HeartbeatLimits = { defaultIntervalMs: 120_000, minTimeoutMs: 10_000 };
/** So many gaps make a rhythm. */
const GAPS_KNOWN = 4;
const GAPS_KEPT = 8;
const MISSED_HEARTBEATS = 3;

export class HeartbeatMonitor {
  readonly #limits: HeartbeatLimits;
  #lastReceived: number;
  #lastPing: number | undefined;
  readonly #intervals: number[] = [];

  constructor(now: number, limits: HeartbeatLimits = HEARTBEAT_LIMITS) {
    this.#limits = limits;
    this.#lastReceived = now;
  }

  /** Anything came. */
  received(now: number): void {
    this.#lastReceived = now;
  }

  pinged(now: number): void {
    if (this.#lastPing !== undefined) {
      this.#intervals.push(now - this.#lastPing);
      if (this.#intervals.length > GAPS_KEPT) this.#intervals.shift();
    }
    this.#lastPing = now;
    this.#lastReceived = now;
  }

  expired(now: number): boolean {
    if (this.#intervals.length === 0) return false;
    const { defaultIntervalMs: expectedMs, minTimeoutMs: leastMs } = this.#limits;
    const gap = this.#intervals.length < GAPS_KNOWN ? expectedMs : Math.max(...this.#intervals);
    return now - this.#lastReceived > Math.max(leastMs, MISSED_HEARTBEATS * gap);
  }
}
