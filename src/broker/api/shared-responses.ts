/**
 * Answers that many look at. Whoever asks for the same within a second gets the same text, made once; and texts are made one after the other, with
 * a rest after each that is a multiple of the time it took. So the windows that are open cost the broker a bounded part of its time, however
 * many they are and whatever they show: with many of them they only move more slowly.
 */
import { LaboroError } from "../../base/errors.js";

export interface SharedResponse {
  readonly text: string;
  /** Another where the text is another. */
  readonly etag: string;
}

interface CacheEntry {
  response: SharedResponse | undefined;
  madeAt: number;
  pending: Promise<SharedResponse> | undefined;
}

/** A text is given again for so long. */
const MAX_AGE_MS = 1_000;
/** Rest after a making, in multiples of the time it took: a fifth of the time is worked at most. */
const PAUSE_FACTOR = 4;
const MAX_PAUSE_MS = 2_000;
/** Different texts at one time. */
const MOST = 1_000;
/** Makings that may wait for their turn; more are refused at once. */
const MOST_WAITING = 100;

export class SharedResponses {
  readonly #entries = new Map<string, CacheEntry>();
  readonly #now: () => number;
  readonly #sleep: (ms: number) => Promise<void>;
  #turn: Promise<void> = Promise.resolve();
  #waiting = 0;
  #tags = 0;

  constructor(now: () => number = () => performance.now(), rest: (ms: number) => Promise<void> = sleep) {
    this.#now = now;
    this.#sleep = rest;
  }

  get(key: string, make: () => Promise<string>): Promise<SharedResponse> {
    const entry = this.#entries.get(key) ?? { response: undefined, madeAt: 0, pending: undefined };
    // The one asked for longest ago goes first.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > MOST && oldest !== undefined) this.#entries.delete(oldest);
    if (entry.response !== undefined && this.#now() - entry.madeAt < MAX_AGE_MS) return Promise.resolve(entry.response);
    if (entry.pending !== undefined) return entry.pending;
    if (this.#waiting >= MOST_WAITING) {
      const why = `${this.#waiting} looks wait already, of those that many share`;
      return Promise.reject(new LaboroError("LABORO_QUEUE_FULL", why));
    }
    entry.pending = this.#make(entry, make).finally(() => {
      entry.pending = undefined;
    });
    return entry.pending;
  }

  async #make(entry: CacheEntry, make: () => Promise<string>): Promise<SharedResponse> {
    const turn = this.#turn;
    const { promise: over, resolve: end } = withResolvers();
    this.#turn = over;
    this.#waiting++;
    await turn;
    this.#waiting--;
    const began = this.#now();
    try {
      const text = await make();
      if (entry.response?.text !== text) entry.response = { text, etag: `"${(++this.#tags).toString(36)}"` };
      entry.madeAt = this.#now();
      return entry.response as SharedResponse;
    } finally {
      const took = this.#now() - began;
      void this.#sleep(Math.min(MAX_PAUSE_MS, took * PAUSE_FACTOR)).then(end);
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

const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
