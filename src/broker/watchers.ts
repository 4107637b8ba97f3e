/** Who wants to be told of something that happens to one thing: the end of a job, output of a task. */
export class Watchers<Key, Value> {
  readonly #told = new Map<Key, Set<(news: Value) => void>>();

  get size(): number {
    return this.#told.size;
  }

  /** What is being watched. */
  keys(): Key[] {
    return [...this.#told.keys()];
  }

  /** Called at every news of it, until the function that is returned here is called. */
  watch(key: Key, told: (news: Value) => void): () => void {
    const watchers = this.#told.get(key) ?? new Set();
    this.#told.set(key, watchers);
    watchers.add(told);
    return () => {
      watchers.delete(told);
      if (watchers.size === 0 && this.#told.get(key) === watchers) this.#told.delete(key);
    };
  }

  notify(key: Key, news: Value): void {
    for (const told of [...(this.#told.get(key) ?? [])]) told(news);
  }
}

/** Resolves with the first news, or with undefined when the time is up or nobody waits any more. */
export function waitForNext<Value>(
  subscribe: (told: (news: Value) => void) => () => void,
  timeoutMs: number | undefined,
  signal: AbortSignal,
): Promise<Value | undefined> {
  return new Promise((resolve) => {
    const end = (news?: Value): void => {
      forget();
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      resolve(news);
    };
    const stop = (): void => end();
    const timer = timeoutMs === undefined ? undefined : setTimeout(stop, timeoutMs);
    const forget = subscribe(end);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
}
