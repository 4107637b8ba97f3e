import { type JobId, taskKey } from "../model/ids.js";
import type { OutputChunk, Write } from "../model/store.js";

/** Callbacks for updates: the end of a job, the output of a task. */
export class Watchers<Key, Value> {
  readonly #listeners = new Map<Key, Set<(update: Value) => void>>();

  get size(): number {
    return this.#listeners.size;
  }

  keys(): Key[] {
    return [...this.#listeners.keys()];
  }

  /** Calls `listener` at every update. Returns the function that removes it. */
  watch(key: Key, listener: (update: Value) => void): () => void {
    const watchers = this.#listeners.get(key) ?? new Set();
    this.#listeners.set(key, watchers);
    watchers.add(listener);
    return () => {
      watchers.delete(listener);
      if (watchers.size === 0 && this.#listeners.get(key) === watchers) this.#listeners.delete(key);
    };
  }

  notify(key: Key, update: Value): void {
    const listeners = this.#listeners.get(key);
    if (listeners !== undefined) for (const listener of [...listeners]) listener(update);
  }
}

/** By `taskKey`: output was stored, or the task's attempt has ended. */
export class TaskUpdates extends Watchers<string, undefined> {
  outputStored(chunks: readonly OutputChunk[]): void {
    if (this.size > 0) for (const { job, index } of chunks) this.notify(taskKey(job, index), undefined);
  }

  committed(writes: readonly Write[]): void {
    if (this.size === 0) return;
    for (const write of writes) {
      const ended = write.op === "settle" ? write.results : write.op === "replace" ? write.earlierAttempts : [];
      for (const { index } of ended) if ("job" in write) this.notify(taskKey(write.job as JobId, index), undefined);
    }
  }
}

/** Resolves with the first update, or with undefined after the timeout or when `signal` aborts. */
export function waitForNext<Value>(
  subscribe: (listener: (update: Value) => void) => () => void,
  timeoutMs: number | undefined,
  signal: AbortSignal,
): Promise<Value | undefined> {
  return new Promise((resolve) => {
    const end = (update?: Value): void => {
      unsubscribe();
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      resolve(update);
    };
    const stop = (): void => end();
    const timer = timeoutMs === undefined ? undefined : setTimeout(stop, timeoutMs);
    const unsubscribe = subscribe(end);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
}
