/** Notices that functions of this process have kept its event loop busy for longer than a heartbeat: then the broker hears nothing. */
import type { Log } from "../base/log.js";

export class BlockWatch {
  readonly #log: Log;
  readonly #now: () => number;
  readonly #names = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Log, now: () => number = () => performance.now()) {
    this.#log = log;
    this.#now = now;
  }

  /** A function of this process handles it. */
  add(name: string): void {
    this.#names.add(name);
  }

  start(heartbeatMs: number): void {
    this.stop();
    const intervalMs = heartbeatMs / 2;
    let last = this.#now();
    this.#timer = setInterval(() => {
      const blockedMs = Math.round(this.#now() - last - intervalMs);
      last = this.#now();
      if (blockedMs < heartbeatMs || this.#names.size === 0) return;
      const names = [...this.#names].join(", ");
      this.#log.warn(
        { blockedMs, heartbeatMs },
        `the event loop was blocked for longer than a heartbeat: handlers that compute belong into threads (here: ${names})`,
      );
    }, intervalMs).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
