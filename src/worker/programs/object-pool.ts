/** Things lent to one borrower at a time; the one returned last goes first. More of them are made when needed, up to a number. */
import { LaboroError } from "../../base/errors.js";

export class ObjectPool<Thing> {
  #max: number;
  readonly #make: (() => Thing) | undefined;
  readonly #free: Thing[];
  readonly #waiting = new Set<(thing: Thing) => void>();
  #made = 0;

  constructor(first: readonly Thing[], max = 0, make?: () => Thing) {
    this.#free = [...first].reverse();
    this.#max = max;
    this.#make = make;
  }

  /** In order of asking. `signal` takes the wish back. */
  acquire(signal: AbortSignal): Promise<Thing> {
    const free = this.#free.pop();
    if (free !== undefined) return Promise.resolve(free);
    if (this.#make !== undefined && this.#made < this.#max) {
      this.#made++;
      return Promise.resolve(this.#make());
    }
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.delete(got);
        reject(new LaboroError("LABORO_DEADLINE", "nobody waits for the answer any more"));
      };
      const got = (thing: Thing): void => {
        signal.removeEventListener("abort", abort);
        resolve(thing);
      };
      this.#waiting.add(got);
      signal.addEventListener("abort", abort, { once: true });
    });
  }

  /** So many may be made from now on, where that is more. */
  grow(max: number): void {
    while (this.#max < max) {
      this.#max++;
      if (this.#waiting.size === 0 || this.#make === undefined) continue;
      this.#made++;
      this.release(this.#make());
    }
  }

  release(thing: Thing): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free.push(thing);
      return;
    }
    this.#waiting.delete(next);
    next(thing);
  }

  /** It is of no more use, be it lent or free: there is room for another. */
  discard(thing: Thing): void {
    const at = this.#free.indexOf(thing);
    if (at >= 0) this.#free.splice(at, 1);
    this.#made--;
    if (this.#waiting.size === 0 || this.#make === undefined) return;
    this.#made++;
    this.release(this.#make());
  }
}
