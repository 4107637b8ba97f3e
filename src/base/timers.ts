/** Timers that end together with their owner. */
export class Timers {
  readonly #running = new Set<NodeJS.Timeout>();

  after(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#running.delete(timer);
      act();
    }, ms);
    this.#running.add(timer);
  }

  clear(): void {
    for (const timer of this.#running) clearTimeout(timer);
    this.#running.clear();
  }
}

/** So long, or until the signal comes. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
    if (signal.aborted) done();
  });
}
