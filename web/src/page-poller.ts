/** Polls for a page: one request at a time, none while it is hidden, at longer intervals after failures. */
const DEFAULT_INTERVAL_MS = 1_000;
const MAX_INTERVAL_MS = 15_000;

export class PagePoller {
  readonly #poll: (signal: AbortSignal) => Promise<void>;
  readonly #onResult: (cause?: unknown) => void;
  readonly #intervalMs: number;
  readonly #abort = new AbortController();
  #wake: (() => void) | undefined;
  #pollRequested = false;

  constructor(
    poll: (signal: AbortSignal) => Promise<void>,
    onResult: (cause?: unknown) => void,
    intervalMs = DEFAULT_INTERVAL_MS,
  ) {
    this.#poll = poll;
    this.#onResult = onResult;
    this.#intervalMs = intervalMs;
    document.addEventListener("visibilitychange", () => this.pollNow(), { signal: this.#abort.signal });
    void this.#run();
  }

  /** After a change by the user: polls at once. */
  pollNow(): void {
    this.#pollRequested = true;
    this.#wake?.();
  }

  stop(): void {
    this.#abort.abort();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort;
    let failures = 0;
    while (!signal.aborted) {
      this.#pollRequested = false;
      if (!document.hidden) {
        try {
          await this.#poll(signal);
          failures = 0;
          if (!signal.aborted) this.#onResult();
        } catch (cause) {
          if (signal.aborted) return;
          failures++;
          this.#onResult(cause);
        }
      }
      if (!this.#pollRequested)
        await this.#sleep(Math.min(MAX_INTERVAL_MS, this.#intervalMs * 2 ** Math.min(failures, 5)));
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
      // A hidden page waits until it is visible.
      const timer = document.hidden ? undefined : setTimeout(end, ms);
      this.#wake = end;
    });
  }
}
