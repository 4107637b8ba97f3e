/**
 * Looking again and again: one look after the other, never two at once, none while nobody sees the page. A look that fails is tried again
 * ever more slowly, until one succeeds.
 */
const USUAL_MS = 1_000;
const LONGEST_MS = 15_000;

export class Pulse {
  readonly #look: (signal: AbortSignal) => Promise<void>;
  readonly #told: (cause?: unknown) => void;
  readonly #everyMs: number;
  readonly #over = new AbortController();
  #wake: (() => void) | undefined;
  #hurried = false;

  constructor(look: (signal: AbortSignal) => Promise<void>, told: (cause?: unknown) => void, everyMs = USUAL_MS) {
    this.#look = look;
    this.#told = told;
    this.#everyMs = everyMs;
    document.addEventListener("visibilitychange", () => this.now(), { signal: this.#over.signal });
    void this.#run();
  }

  /** Something was done: look at once. */
  now(): void {
    this.#hurried = true;
    this.#wake?.();
  }

  stop(): void {
    this.#over.abort();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    const { signal } = this.#over;
    let failures = 0;
    while (!signal.aborted) {
      this.#hurried = false;
      if (!document.hidden) {
        try {
          await this.#look(signal);
          failures = 0;
          if (!signal.aborted) this.#told();
        } catch (cause) {
          if (signal.aborted) return;
          failures++;
          this.#told(cause);
        }
      }
      if (!this.#hurried) await this.#rest(Math.min(LONGEST_MS, this.#everyMs * 2 ** Math.min(failures, 5)));
    }
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
      // A page that nobody sees waits until somebody does.
      const timer = document.hidden ? undefined : setTimeout(end, ms);
      this.#wake = end;
    });
  }
}
