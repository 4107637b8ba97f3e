/**
 * Wakes those who follow something, after it has changed: at most once for all changes of a turn of the event loop, and with a pause
 * after each round that is a multiple of what the round cost. So followers cost a bounded part of the broker's time, however many there
 * are: with many of them they only hear of changes later.
 */

/** The pause, as a multiple of the time a round took: at most a fifth of the time is spent on followers. */
const PAUSE_FACTOR = 4;
/** What a follower costs after it was woken, when it answers its client. */
const ANSWER_MS = 0.025;
const MAX_PAUSE_MS = 1_000;

export class Followers {
  readonly #wakes = new Set<() => void>();
  #state: "idle" | "scheduled" | "pausing" = "idle";
  #changed = false;

  get count(): number {
    return this.#wakes.size;
  }

  /** Returns the function that removes it. */
  add(wake: () => void): () => void {
    this.#wakes.add(wake);
    return () => this.#wakes.delete(wake);
  }

  /** Something has changed. */
  notify(): void {
    this.#changed = true;
    if (this.#state !== "idle" || this.#wakes.size === 0) return;
    this.#state = "scheduled";
    setImmediate(() => this.#round());
  }

  #round(): void {
    this.#changed = false;
    const began = performance.now();
    const woken = [...this.#wakes];
    for (const wake of woken) wake();
    const costMs = performance.now() - began + woken.length * ANSWER_MS;
    const pauseMs = Math.min(MAX_PAUSE_MS, costMs * PAUSE_FACTOR);
    this.#state = "pausing";
    const resume = (): void => {
      this.#state = "idle";
      if (this.#changed) this.notify();
    };
    // A timer would make a single follower wait for a millisecond.
    if (pauseMs < 1) setImmediate(resume);
    else setTimeout(resume, pauseMs).unref();
  }
}
