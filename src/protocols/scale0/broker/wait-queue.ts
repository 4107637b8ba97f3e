/** The requests that a worker has and has not answered: its part of the wait queue. */
import type { RequestId } from "../../../model/ids.js";

/** A request, or a task that is one. */
export interface WorkItem {
  /** The number of the request, or the name of the task. */
  readonly id: RequestId | string;
  /** `error` is the worker's; undefined for a good answer. */
  readonly answer: (body: readonly Uint8Array[], error: unknown) => void;
  /** How long its asker waits. */
  readonly timeoutMs: number;
}

interface QueuedWork extends WorkItem {
  /** Nobody waits for it since then: only the worker still works on it, and cannot be stopped. */
  abandonedSince?: number;
}

export class WaitQueue {
  readonly #work = new Map<string, QueuedWork>();

  /** All that the worker works on. */
  get size(): number {
    return this.#work.size;
  }

  /** How many of those somebody waits for. */
  get awaited(): number {
    let count = 0;
    for (const { abandonedSince } of this.#work.values()) if (abandonedSince === undefined) count++;
    return count;
  }

  add(identifier: string, work: WorkItem): void {
    this.#work.set(identifier, work);
  }

  /** It was answered: undefined where nobody waits for it. */
  take(identifier: string): WorkItem | undefined {
    const work = this.#work.get(identifier);
    this.#work.delete(identifier);
    return work?.abandonedSince === undefined ? work : undefined;
  }

  /** Nobody waits for it any more: what it was, if somebody did. */
  abandon(id: WorkItem["id"], now: number): WorkItem | undefined {
    for (const work of this.#work.values()) {
      if (work.id !== id || work.abandonedSince !== undefined) continue;
      work.abandonedSince = now;
      return work;
    }
    return undefined;
  }

  /** A worker that goes on and on without an answer has none: it gets its slot back after as long again as the asker waited. */
  removeAbandoned(now: number): void {
    for (const [identifier, { timeoutMs, abandonedSince }] of this.#work) {
      if (abandonedSince !== undefined && now - abandonedSince > timeoutMs) this.#work.delete(identifier);
    }
  }

  clear(): void {
    this.#work.clear();
  }
}
