/** Who wants to be told of something that happens to one thing: the end of a job, output of a task. */
export class Watchers<Key, News> {
  readonly #told = new Map<Key, Set<(news: News) => void>>();

  get size(): number {
    return this.#told.size;
  }

  /** What is being watched. */
  keys(): Key[] {
    return [...this.#told.keys()];
  }

  /** Called at every news of it, until the function that is returned here is called. */
  watch(key: Key, told: (news: News) => void): () => void {
    const watchers = this.#told.get(key) ?? new Set();
    this.#told.set(key, watchers);
    watchers.add(told);
    return () => {
      watchers.delete(told);
      if (watchers.size === 0 && this.#told.get(key) === watchers) this.#told.delete(key);
    };
  }

  tell(key: Key, news: News): void {
    for (const told of [...(this.#told.get(key) ?? [])]) told(news);
  }
}

/** Resolves with the first news, or with undefined when the time is up or nobody waits any more. */
export function nextNews<News>(
  subscribe: (told: (news: News) => void) => () => void,
  timeoutMs: number | undefined,
  gone: AbortSignal,
): Promise<News | undefined> {
  return new Promise((resolve) => {
    const end = (news?: News): void => {
      forget();
      clearTimeout(timer);
      gone.removeEventListener("abort", stop);
      resolve(news);
    };
    const stop = (): void => end();
    const timer = timeoutMs === undefined ? undefined : setTimeout(stop, timeoutMs);
    const forget = subscribe(end);
    gone.addEventListener("abort", stop, { once: true });
    if (gone.aborted) stop();
  });
}
