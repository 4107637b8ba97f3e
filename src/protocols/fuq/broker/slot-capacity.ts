const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 1_000;
/** The original can refuse once after its UPDATE was acknowledged. This many refusals have another cause. */
const MAX_REFUSALS = 3;

/**
 * The slots of a worker that the broker may use. A worker that refuses a task gets none for 5 ms to 1 s. If a worker
 * with a free slot keeps refusing and has never used its last slot, the broker uses one slot less: by the specification
 * (`nproc > job_nproc`) the last slot is never used.
 */
export class SlotCapacity {
  /** max_nproc of the specification. */
  slots = 0;
  /** The worker has not reported its number of slots. */
  guessed = false;
  /** The worker gets no task, because it has just refused one. */
  paused = false;
  /** The same, because it does not answer. */
  hung = false;
  /** Slots that the worker has and does not use. */
  withheld = 0;
  #refusalsInARow = 0;
  #refusalsWithFreeSlots = 0;
  #usesLastSlot = false;

  get usable(): number {
    return this.slots - this.withheld;
  }

  /** Assumes as many slots as are used, at least one, until the worker reports more. */
  guess(used: number): void {
    this.slots = Math.max(1, used);
    this.guessed = true;
  }

  /** The worker has accepted a task and has `free` slots left. */
  accepted(free: number): void {
    this.#refusalsInARow = 0;
    if (free > 0) return;
    this.#usesLastSlot = true;
    this.#refusalsWithFreeSlots = 0;
  }

  /** The worker has refused a task and reports `free` slots. Returns how long it gets no other task. */
  refused(free: number): number {
    this.paused = true;
    if (free > 0 && !this.#usesLastSlot && ++this.#refusalsWithFreeSlots >= MAX_REFUSALS) {
      this.#refusalsWithFreeSlots = 0;
      this.withheld = Math.min(this.slots, this.withheld + 1);
    }
    return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#refusalsInARow++, 10));
  }
}
