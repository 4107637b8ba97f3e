/**
 * A job's tasks that may be handed out now. What has been out before goes first, so that a batch does not end with its oldest
 * tasks; within each of the two lists, first come, first served. Every step costs O(1), however many parcels wait.
 */
import type { WorkerId } from "../model/ids.js";
import { Fifo } from "./fifo.js";
import type { WaitingRange } from "./state.js";

/** How many parcels are passed over to find one that did not fail at this very worker. */
const MAX_SKIPPED = 8;

export class TaskQueue implements Iterable<WaitingRange> {
  readonly #retried = new Fifo<WaitingRange>();
  readonly #fresh = new Fifo<WaitingRange>();

  get length(): number {
    return this.#retried.length + this.#fresh.length;
  }

  get front(): WaitingRange | undefined {
    return this.#retried.front ?? this.#fresh.front;
  }

  add(waiting: WaitingRange): void {
    if (waiting.attempt > 0) this.#retried.add(waiting);
    else this.#fresh.add(waiting);
  }

  /** The next that another worker is not better for. */
  frontFor(worker: WorkerId): WaitingRange | undefined {
    const looks = Math.min(MAX_SKIPPED, this.#retried.length);
    for (let looked = 0; looked < looks; looked++) {
      const waiting = this.#retried.front;
      if (waiting?.avoid !== worker) return waiting;
      this.#retried.rotate();
    }
    return this.#fresh.front;
  }

  /** Nothing is left of one that stood in front. */
  dropFront(waiting: WaitingRange): void {
    if (this.#retried.front === waiting) this.#retried.shift();
    else if (this.#fresh.front === waiting) this.#fresh.shift();
  }

  clear(): void {
    this.#retried.clear();
    this.#fresh.clear();
  }

  *[Symbol.iterator](): Iterator<WaitingRange> {
    yield* this.#retried;
    yield* this.#fresh;
  }
}
