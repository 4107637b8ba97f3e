/**
 * A cache of responses for many clients. Requests for the same text within a second share one response. Texts are made
 * one after the other, with a pause after each in proportion to the time it took. So dashboards take a bounded part of
 * the broker's time: with many open, they update less often.
 */
import { LaboroError } from "../../base/errors.js";
import { keepLatest } from "../../base/keep-latest.js";

interface SharedResponse {
  readonly text: string;
  /** Changes with the text. */
  readonly etag: string;
}

interface CacheEntry {
  response: SharedResponse | undefined;
  madeAt: number;
  pending: Promise<SharedResponse> | undefined;
}

/** How long a text is used. */
const MAX_AGE_MS = 1_000;
/** The pause after each text as a multiple of its time: at most a fifth of the time is spent on texts. */
const PAUSE_FACTOR = 4;
const MAX_PAUSE_MS = 2_000;
/** Different texts in the cache, and their characters. */
const MOST = 1_000;
const MOST_CHARACTERS = 32 * 1024 * 1024;
/** Texts that may wait to be made. Beyond that, requests are refused at once. */
const MAX_WAITING = 100;

export class SharedResponses {
  readonly #entries = new Map<string, CacheEntry>();
  readonly #now: () => number;
  readonly #sleep: (ms: number) => Promise<void>;
  #turn: Promise<void> = Promise.resolve();
  #waiting = 0;
  #tags = 0;

  constructor(now: () => number = () => performance.now(), pause: (ms: number) => Promise<void> = sleep) {
    this.#now = now;
    this.#sleep = pause;
  }

  get(key: string, make: () => Promise<string>): Promise<SharedResponse> {
    const entry = this.#entries.get(key) ?? { response: undefined, madeAt: 0, pending: undefined };
    // The entry used longest ago is dropped first.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    keepLatest(this.#entries, MOST);
    if (entry.response !== undefined && this.#now() - entry.madeAt < MAX_AGE_MS) return Promise.resolve(entry.response);
    if (entry.pending !== undefined) return entry.pending;
    if (this.#waiting >= MAX_WAITING) {
      const why = `${this.#waiting} shared responses are waiting already`;
      return Promise.reject(new LaboroError("LABORO_QUEUE_FULL", why));
    }
    entry.pending = this.#make(entry, make).finally(() => {
      entry.pending = undefined;
    });
    return entry.pending;
  }

  /** Those used longest ago, beyond so many characters. */
  #dropOldest(): void {
    let characters = 0;
    for (const [key, { response }] of [...this.#entries].reverse()) {
      characters += response?.text.length ?? 0;
      if (characters > MOST_CHARACTERS) this.#entries.delete(key);
    }
  }

  /** In the cache now. */
  get size(): number {
    return this.#entries.size;
  }

  async #make(entry: CacheEntry, make: () => Promise<string>): Promise<SharedResponse> {
    const turn = this.#turn;
    const { promise, resolve } = withResolvers();
    this.#turn = promise;
    this.#waiting++;
    await turn;
    this.#waiting--;
    const began = this.#now();
    try {
      const text = await make();
      if (entry.response?.text !== text) entry.response = { text, etag: `"${(++this.#tags).toString(36)}"` };
      entry.madeAt = this.#now();
      this.#dropOldest();
      return entry.response as SharedResponse;
    } finally {
      const took = this.#now() - began;
      void this.#sleep(Math.min(MAX_PAUSE_MS, took * PAUSE_FACTOR)).then(resolve);
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
