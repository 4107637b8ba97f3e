/**
 * How many slots of a worker are offered to the broker. A worker that refuses a task gets no other for a moment, from 5 ms up to a second;
 * one that refuses again and again while it says that a slot is free, and has never been seen to use its last one, keeps that slot:
 * by the letter of the text (`nproc > job_nproc`) it is never to be used.
 */

const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 1_000;
/** The original can refuse once when it has just had its UPDATE acknowledged; this many times it cannot mean that. */
const REFUSALS = 3;

export class SlotCapacity {
  /** max_nproc of the text. */
  slots = 0;
  /** The worker has not said how many it has. */
  guessed = false;
  /** It gets no task. */
  paused = false;
  /** Slots that the worker has and does not use. */
  withheld = 0;
  #refusalsInARow = 0;
  #refusalsWithFreeSlots = 0;
  #usesLastSlot = false;

  /** Those of them that may have tasks. */
  get usable(): number {
    return this.slots - this.withheld;
  }

  /** As many as it uses, and at least one, until it says more. */
  guess(used: number): void {
    this.slots = Math.max(1, used);
    this.guessed = true;
  }

  /** The worker has taken a task, and has so many slots free now. */
  accepted(free: number): void {
    this.#refusalsInARow = 0;
    if (free > 0) return;
    this.#usesLastSlot = true;
    this.#refusalsWithFreeSlots = 0;
  }

  /** The worker has refused a task, and says that it has so many slots free. Gives how long it gets no other. */
  refused(free: number): number {
    this.paused = true;
    if (free > 0 && !this.#usesLastSlot && ++this.#refusalsWithFreeSlots >= REFUSALS) {
      this.#refusalsWithFreeSlots = 0;
      this.withheld = Math.min(this.slots, this.withheld + 1);
    }
    return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#refusalsInARow++, 10));
  }
}
