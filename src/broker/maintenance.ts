/** Whether this broker is being drained. Then it assigns nothing new, and listeners that know other brokers send their peers there. */
export class Maintenance {
  readonly #listeners = new Set<(draining: boolean) => void>();
  #draining = false;

  get draining(): boolean {
    return this.#draining;
  }

  /** Notifies the listeners if it is a change. */
  set(draining: boolean): void {
    if (this.#draining === draining) return;
    this.#draining = draining;
    for (const listener of [...this.#listeners]) listener(draining);
  }

  /** Returns the function that removes the listener. */
  onChanged(listener: (draining: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
