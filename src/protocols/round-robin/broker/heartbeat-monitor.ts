/**
 * When a worker's heartbeats have stopped. The protocol does not say how far apart they are: the original's programs set 120 s. So the
 * interval of each worker is measured, and only a worker with a measured interval can be missed.
 */
export interface HeartbeatLimits {
  /** What is assumed until a worker's interval is known. */
  readonly defaultIntervalMs: number;
  /** No worker is given up sooner than this. */
  readonly minTimeoutMs: number;
}

export const HEARTBEAT_LIMITS: HeartbeatLimits = { defaultIntervalMs: 120_000, minTimeoutMs: 10_000 };
/** The measured intervals that are needed before they count, and how many are kept. */
const MIN_INTERVALS = 4;
const MAX_INTERVALS = 8;
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
      if (this.#intervals.length > MAX_INTERVALS) this.#intervals.shift();
    }
    this.#lastPing = now;
    this.#lastReceived = now;
  }

  expired(now: number): boolean {
    if (this.#intervals.length === 0) return false;
    const { defaultIntervalMs, minTimeoutMs } = this.#limits;
    const intervalMs = this.#intervals.length < MIN_INTERVALS ? defaultIntervalMs : Math.max(...this.#intervals);
    return now - this.#lastReceived > Math.max(minTimeoutMs, MISSED_HEARTBEATS * intervalMs);
  }
}
