/** Why this broker assigns no tasks. It assigns again when the last reason is gone; requests are served all the while. */
import { now } from "../base/clock.js";
import type { LaboroError } from "../base/errors.js";
import { onHalt, onResume, type State } from "../dispatch/index.js";
import type { Decide } from "./pending-requests.js";

const TEXTS = {
  commits: "its store cannot be written",
  lease: "its lease on the shared store is about to end",
  maintenance: "it is drained",
  stop: "it is stopping",
} as const;
type HaltReason = keyof typeof TEXTS;

export class Halts {
  readonly #state: State;
  readonly #decide: Decide;
  readonly #causes = new Map<HaltReason, LaboroError | undefined>();

  constructor(state: State, decide: Decide) {
    this.#state = state;
    this.#decide = decide;
  }

  causeOf(reason: HaltReason): LaboroError | undefined {
    return this.#causes.get(reason);
  }

  add(reason: HaltReason, cause?: LaboroError): void {
    this.#causes.set(reason, cause);
    this.#apply();
  }

  remove(reason: HaltReason): void {
    if (!this.#causes.delete(reason)) return;
    if (this.#causes.size === 0) this.#decide((out) => onResume(this.#state, out, now()));
    else this.#apply();
  }

  #apply(): void {
    const texts = Array.from(this.#causes, ([reason, cause]) =>
      cause === undefined ? TEXTS[reason] : `${TEXTS[reason]} (${cause.message})`,
    );
    onHalt(this.#state, texts.join("; "));
  }
}

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
