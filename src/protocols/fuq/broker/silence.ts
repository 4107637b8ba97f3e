/**
 * A worker that owes the foreman a word, and when it is asked for its numbers instead.
 *
 * An original that is connected again says HELLO only where the answer to an UPDATE asks for it, older ones never. One that was just started,
 * or asked for it, says HELLO at once; from just before it until its OK has come the original cannot answer anything, and would hang for
 * ever. So it is left alone for much longer than a HELLO is on its way, and then asked.
 */
const SILENCE_MS = 5_000;
/** A worker that is sent away for its silence ends: it gets so many times as long. */
const LIFE = 6;

export interface SilenceParts {
  /** The worker may be an original; others are not asked. */
  readonly original: boolean;
  readonly silenceMs?: number;
  readonly joined: () => boolean;
  readonly ask: () => void;
}

export class Silence {
  /** It has fewer tasks than it should have, and has not said which. */
  unsure = false;
  readonly #parts: SilenceParts;
  #helloWanted = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: SilenceParts) {
    this.#parts = parts;
  }

  /** It was asked for a HELLO: it is told nothing until that has come, or enough time for it. */
  get helloWanted(): boolean {
    return this.#helloWanted;
  }

  wantHello(): void {
    this.#helloWanted = true;
    this.begin();
  }

  helloCame(): void {
    this.#helloWanted = false;
    this.unsure = false;
    this.end();
  }

  /** From now on. */
  begin(): void {
    const { original, silenceMs = SILENCE_MS } = this.#parts;
    clearTimeout(this.#timer);
    if (original) this.#timer = setTimeout(() => this.#over(), silenceMs);
  }

  /** It was asked for a sign of life, which may be anything that it asks itself. */
  awaitLife(hangs: () => void): void {
    const { silenceMs = SILENCE_MS } = this.#parts;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(hangs, LIFE * silenceMs);
  }

  /** It has asked or told something. A HELLO that is wanted is still wanted. */
  heard(): void {
    if (!this.#helloWanted) this.end();
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #over(): void {
    const { joined, ask } = this.#parts;
    if (joined() && !this.unsure && !this.#helloWanted) return;
    this.#helloWanted = false;
    ask();
  }
}
