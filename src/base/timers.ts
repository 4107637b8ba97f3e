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
