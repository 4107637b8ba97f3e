/**
 * Answers that many look at. Whoever asks for the same within a second gets the same text, made once; and texts are made one after the other, with
 * a rest after each that is a multiple of the time it took. So the windows that are open cost the broker a bounded part of its time, however
 * many they are and whatever they show: with many of them they only move more slowly.
 */
import { LaboroError } from "../../base/errors.js";

export interface Look {
  readonly text: string;
  /** Another where the text is another. */
  readonly tag: string;
}

interface Kept {
  look: Look | undefined;
  madeAt: number;
  making: Promise<Look> | undefined;
}

/** A text is given again for so long. */
const FRESH_MS = 1_000;
/** Rest after a making, in multiples of the time it took: a fifth of the time is worked at most. */
const REST = 4;
const LONGEST_REST_MS = 2_000;
/** Different texts at one time. */
const MOST = 1_000;
/** Makings that may wait for their turn; more are refused at once. */
const MOST_WAITING = 100;

export class Looks {
  readonly #kept = new Map<string, Kept>();
  readonly #now: () => number;
  readonly #rest: (ms: number) => Promise<void>;
  #turn: Promise<void> = Promise.resolve();
  #waiting = 0;
  #tags = 0;

  constructor(now: () => number = () => performance.now(), rest: (ms: number) => Promise<void> = resting) {
    this.#now = now;
    this.#rest = rest;
  }

  look(key: string, make: () => Promise<string>): Promise<Look> {
    const kept = this.#kept.get(key) ?? { look: undefined, madeAt: 0, making: undefined };
    // The one asked for longest ago goes first.
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST && oldest !== undefined) this.#kept.delete(oldest);
    if (kept.look !== undefined && this.#now() - kept.madeAt < FRESH_MS) return Promise.resolve(kept.look);
    if (kept.making !== undefined) return kept.making;
    if (this.#waiting >= MOST_WAITING) {
      const why = `${this.#waiting} looks wait already, of those that many share`;
      return Promise.reject(new LaboroError("LABORO_QUEUE_FULL", why));
    }
    kept.making = this.#make(kept, make).finally(() => {
      kept.making = undefined;
    });
    return kept.making;
  }

  async #make(kept: Kept, make: () => Promise<string>): Promise<Look> {
    const turn = this.#turn;
    const { promise: over, resolve: end } = withResolvers();
    this.#turn = over;
    this.#waiting++;
    await turn;
    this.#waiting--;
    const began = this.#now();
    try {
      const text = await make();
      if (kept.look?.text !== text) kept.look = { text, tag: `"${(++this.#tags).toString(36)}"` };
      kept.madeAt = this.#now();
      return kept.look as Look;
    } finally {
      const took = this.#now() - began;
      void this.#rest(Math.min(LONGEST_REST_MS, took * REST)).then(end);
    }
  }
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

const resting = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
