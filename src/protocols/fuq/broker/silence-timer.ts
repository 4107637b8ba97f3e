/**
 * How long a worker may be silent before it is asked for its counts.
 *
 * An original that is connected again says HELLO only where the answer to an UPDATE asks for it, older ones never. One that was just
 * started, or asked for it, says HELLO at once; from just before it until its OK has come the original cannot answer anything, and would
 * hang for ever. So it is asked only after a time much longer than a HELLO takes.
 */
const SILENCE_MS = 5_000;
/** A worker that is disconnected for its silence exits: it gets so many times as long. */
const PROBE_FACTOR = 6;

interface SilenceTimerOptions {
  /** The worker may be an original; others are not asked. */
  readonly original: boolean;
  readonly silenceMs?: number;
  readonly joined: () => boolean;
  readonly onSilent: () => void;
}

export class SilenceTimer {
  /** It has fewer tasks than it should have, and has not said which. */
  tasksUnknown = false;
  /** It was asked for a HELLO: nothing is sent to it until the HELLO has come, or the time for it is over. */
  awaitingHello = false;
  readonly #options: SilenceTimerOptions;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: SilenceTimerOptions) {
    this.#options = options;
  }

  expectHello(): void {
    this.awaitingHello = true;
    this.start();
  }

  helloReceived(): void {
    this.awaitingHello = false;
    this.tasksUnknown = false;
    this.stop();
  }

  start(): void {
    const { original, silenceMs = SILENCE_MS } = this.#options;
    clearTimeout(this.#timer);
    if (original) this.#timer = setTimeout(() => this.#expired(), silenceMs);
  }

  /** A probe was sent; any request of the worker answers it. */
  awaitProbe(onTimeout: () => void): void {
    const { silenceMs = SILENCE_MS } = this.#options;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(onTimeout, PROBE_FACTOR * silenceMs);
  }

  /** It has sent a request. A HELLO that was asked for is still expected. */
  messageReceived(): void {
    if (!this.awaitingHello) this.stop();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #expired(): void {
    const { joined, onSilent } = this.#options;
    if (joined() && !this.tasksUnknown && !this.awaitingHello) return;
    this.awaitingHello = false;
    onSilent();
  }
}
