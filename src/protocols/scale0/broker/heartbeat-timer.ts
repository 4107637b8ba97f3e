/** Watches a worker's heartbeats: it is lost after three intervals of silence, or one without a connection. */
const MISSED_HEARTBEATS = 3;

export class HeartbeatTimer {
  readonly #onMissed: (silenceMs: number) => void;
  readonly #onLost: () => void;
  #timer: NodeJS.Timeout | undefined;
  #silenceMs = 0;

  constructor(onMissed: (silenceMs: number) => void, onLost: () => void) {
    this.#onMissed = onMissed;
    this.#onLost = onLost;
  }

  received(intervalMs: number): void {
    const silence = MISSED_HEARTBEATS * intervalMs;
    if (this.#timer !== undefined && this.#silenceMs === silence) {
      this.#timer.refresh();
      return;
    }
    clearTimeout(this.#timer);
    this.#silenceMs = silence;
    this.#timer = setTimeout(() => this.#onMissed(silence), silence);
  }

  disconnected(intervalMs: number): void {
    clearTimeout(this.#timer);
    this.#silenceMs = 0;
    this.#timer = setTimeout(() => this.#onLost(), intervalMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
