/**
 * Keeps a link known to be alive: sends a HEARTBEAT when nothing else was sent for an interval, and calls `onTimeout`
 * when nothing at all was received for three.
 *
 * It counts its own ticks, two an interval, and never reads the clock: a process that was stopped or busy for a
 * minute finds one tick missed, not twenty, and does not give up a peer that was there all along.
 */
export const MISSED_LIMIT = 3;
const TICKS = 2;

export interface HeartbeatOptions {
  readonly sendBeat: () => void;
  readonly onTimeout: () => void;
  /** Counters that rise with what is sent and received, a HEARTBEAT included. */
  readonly sent: () => number;
  readonly received: () => number;
  readonly timers?: Timers;
}

export interface Timers {
  /** Calls `tick` every `ms` until the function that it returns is called. */
  readonly every: (ms: number, tick: () => void) => () => void;
}

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #cancel: (() => void) | undefined;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
  }

  start(intervalMs: number): void {
    this.stop();
    const { sendBeat, onTimeout, sent, received, timers = REAL_TIMERS } = this.#options;
    let sentBefore = sent();
    let receivedBefore = received();
    let silent = 0;
    this.#cancel = timers.every(intervalMs / TICKS, () => {
      silent = received() === receivedBefore ? silent + 1 : 0;
      receivedBefore = received();
      if (silent >= MISSED_LIMIT * TICKS) {
        this.stop();
        onTimeout();
        return;
      }
      const idle = sent() === sentBefore;
      sentBefore = sent();
      // The next tick sees the heartbeat itself as sent, so an idle link has one an interval.
      if (idle) sendBeat();
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}

const REAL_TIMERS: Timers = {
  every: (ms, tick) => {
    const timer = setInterval(tick, ms);
    return () => clearInterval(timer);
  },
};
