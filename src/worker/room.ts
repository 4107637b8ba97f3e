/** What a worker has, what is in use of it, and which of its slots are taken. */
import type { Amounts } from "../model/recipe.js";

export class Room {
  readonly total: Amounts;
  readonly #free: Record<string, number>;
  /** Slot numbers not in use, the lowest last. */
  readonly #slots: number[];

  constructor(total: Amounts) {
    this.total = total;
    this.#free = { ...total };
    this.#slots = Array.from({ length: total.slots }, (_, i) => total.slots - 1 - i);
  }

  fits(needs: Amounts): boolean {
    if (this.#slots.length === 0) return false;
    for (const name in needs) if ((needs[name] ?? 0) > (this.#free[name] ?? 0)) return false;
    return true;
  }

  /** The number of the slot in which it runs. */
  take(needs: Amounts): number {
    for (const name in needs) this.#free[name] = (this.#free[name] ?? 0) - (needs[name] ?? 0);
    return this.#slots.pop() ?? 0;
  }

  give(needs: Amounts, slot: number): void {
    for (const name in needs) this.#free[name] = (this.#free[name] ?? 0) + (needs[name] ?? 0);
    this.#slots.push(slot);
  }
}
