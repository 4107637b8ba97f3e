/** Whether this broker is about to be taken down: then it hands out nothing new, and doors that know other brokers send their peers there. */
export class Maintenance {
  readonly #listeners = new Set<(draining: boolean) => void>();
  #draining = false;

  get draining(): boolean {
    return this.#draining;
  }

  /** Tells those who listen, where it is a change. */
  set(draining: boolean): void {
    if (this.#draining === draining) return;
    this.#draining = draining;
    for (const tell of [...this.#listeners]) tell(draining);
  }

  /** Until the function that it returns is called. */
  onChanged(tell: (draining: boolean) => void): () => void {
    this.#listeners.add(tell);
    return () => this.#listeners.delete(tell);
  }
}
