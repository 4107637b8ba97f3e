/** Whether something was heard of a worker: three intervals of silence, or one without a connection, are its end. */
const MISSED = 3;

export class Lifeline {
  readonly #missed: (silenceMs: number) => void;
  readonly #lost: () => void;
  #timer: NodeJS.Timeout | undefined;
  #silenceMs = 0;

  constructor(missed: (silenceMs: number) => void, lost: () => void) {
    this.#missed = missed;
    this.#lost = lost;
  }

  heard(intervalMs: number): void {
    const silence = MISSED * intervalMs;
    if (this.#timer !== undefined && this.#silenceMs === silence) {
      this.#timer.refresh();
      return;
    }
    clearTimeout(this.#timer);
    this.#silenceMs = silence;
    this.#timer = setTimeout(() => this.#missed(silence), silence);
  }

  cut(intervalMs: number): void {
    clearTimeout(this.#timer);
    this.#silenceMs = 0;
    this.#timer = setTimeout(() => this.#lost(), intervalMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
