/** What a worker has been given and has not answered: its part of the wait queue. */
import type { RequestId } from "../../../model/ids.js";

/** A request, or a task that is one. */
export interface Work {
  /** The number of the request, or the name of the task. */
  readonly of: RequestId | string;
  /** `error` is what the worker said with it, undefined for a good answer. */
  readonly answer: (body: readonly Uint8Array[], error: unknown) => void;
  /** How long its asker waits. */
  readonly timeoutMs: number;
}

interface Given extends Work {
  /** Nobody waits for it since then: only the worker is still at it, and cannot be told. */
  overSince?: number;
}

export class WaitQueue {
  readonly #given = new Map<string, Given>();

  /** All that the worker is at. */
  get size(): number {
    return this.#given.size;
  }

  /** How many of those somebody waits for. */
  get wanted(): number {
    let count = 0;
    for (const { overSince } of this.#given.values()) if (overSince === undefined) count++;
    return count;
  }

  add(identifier: string, work: Work): void {
    this.#given.set(identifier, work);
  }

  /** It was answered: undefined where nobody waits for it. */
  take(identifier: string): Work | undefined {
    const work = this.#given.get(identifier);
    this.#given.delete(identifier);
    return work?.overSince === undefined ? work : undefined;
  }

  /** Nobody waits for it any more: what it was, if somebody did. */
  giveUp(of: Work["of"], now: number): Work | undefined {
    for (const work of this.#given.values()) {
      if (work.of !== of || work.overSince !== undefined) continue;
      work.overSince = now;
      return work;
    }
    return undefined;
  }

  /** A worker that goes on and on without an answer has none: it gets its slot back after as long again as the asker waited. */
  forgetOver(now: number): void {
    for (const [identifier, { timeoutMs, overSince }] of this.#given) {
      if (overSince !== undefined && now - overSince > timeoutMs) this.#given.delete(identifier);
    }
  }

  clear(): void {
    this.#given.clear();
  }
}
