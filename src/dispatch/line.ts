/**
 * A job's tasks that may be handed out now. What has been out before goes first, so that a batch does not end with its oldest
 * tasks; within each of the two lists, first come, first served. Every step costs O(1), however many parcels wait.
 */
import type { WorkerId } from "../model/ids.js";
import { Fifo } from "./fifo.js";
import type { Waiting } from "./state.js";

/** How many parcels are passed over to find one that did not fail at this very worker. */
const LOOK_AT = 8;

export class Line implements Iterable<Waiting> {
  readonly #again = new Fifo<Waiting>();
  readonly #fresh = new Fifo<Waiting>();

  get length(): number {
    return this.#again.length + this.#fresh.length;
  }

  get front(): Waiting | undefined {
    return this.#again.front ?? this.#fresh.front;
  }

  add(waiting: Waiting): void {
    if (waiting.attempt > 0) this.#again.add(waiting);
    else this.#fresh.add(waiting);
  }

  /** The next that another worker is not better for. */
  frontFor(worker: WorkerId): Waiting | undefined {
    const looks = Math.min(LOOK_AT, this.#again.length);
    for (let looked = 0; looked < looks; looked++) {
      const waiting = this.#again.front;
      if (waiting?.avoid !== worker) return waiting;
      this.#again.rotate();
    }
    return this.#fresh.front;
  }

  /** Nothing is left of one that stood in front. */
  dropFront(waiting: Waiting): void {
    if (this.#again.front === waiting) this.#again.shift();
    else if (this.#fresh.front === waiting) this.#fresh.shift();
  }

  clear(): void {
    this.#again.clear();
    this.#fresh.clear();
  }

  *[Symbol.iterator](): Iterator<Waiting> {
    yield* this.#again;
    yield* this.#fresh;
  }
}
