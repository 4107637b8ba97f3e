/**
 * The tasks of a job that may be handed out now. Tasks that were handed out before go first, so that a batch does not end with
 * its oldest tasks. Within each of the two lists the order is first in, first out. Every step costs O(1), however many ranges wait.
 */
import type { WorkerId } from "../model/ids.js";
import { Fifo } from "./fifo.js";
import type { WaitingRange } from "./state.js";

/** How many ranges are skipped to find one that did not fail at this worker. */
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

  /** The next range for this worker. Skips tasks that failed here and should be retried elsewhere. */
  frontFor(worker: WorkerId): WaitingRange | undefined {
    const tries = Math.min(MAX_SKIPPED, this.#retried.length);
    for (let tried = 0; tried < tries; tried++) {
      const waiting = this.#retried.front;
      if (waiting?.avoid !== worker) return waiting;
      this.#retried.rotate();
    }
    return this.#fresh.front;
  }

  /** Removes the front range, of which no task is left. */
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
