/** A pool of objects, each for one holder at a time, created when needed, up to `max`. The last released is next. */
import { LaboroError } from "../../base/errors.js";

const notWanted = (): LaboroError => new LaboroError("LABORO_DEADLINE", "the call was aborted before it began");

export class ObjectPool<Item> {
  #max: number;
  readonly #create: (() => Item) | undefined;
  readonly #free: Item[];
  readonly #waiting = new Set<(item: Item) => void>();
  #created = 0;

  constructor(first: readonly Item[], max = 0, create?: () => Item) {
    this.#free = [...first].reverse();
    this.#max = max;
    this.#create = create;
  }

  /** First come, first served. `signal` cancels the wait. */
  acquire(signal: AbortSignal): Promise<Item> {
    if (signal.aborted) return Promise.reject(notWanted());
    const free = this.#free.pop();
    if (free !== undefined) return Promise.resolve(free);
    if (this.#create !== undefined && this.#created < this.#max) {
      this.#created++;
      return Promise.resolve(this.#create());
    }
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.delete(got);
        reject(notWanted());
      };
      const got = (item: Item): void => {
        signal.removeEventListener("abort", abort);
        resolve(item);
      };
      this.#waiting.add(got);
      signal.addEventListener("abort", abort, { once: true });
    });
  }

  /** Raises the maximum to `max`, if that is more. */
  grow(max: number): void {
    while (this.#max < max) {
      this.#max++;
      if (this.#waiting.size === 0 || this.#create === undefined) continue;
      this.#created++;
      this.release(this.#create());
    }
  }

  release(item: Item): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free.push(item);
      return;
    }
    this.#waiting.delete(next);
    next(item);
  }

  /** Removes an unusable object, in use or free, so that another can be created. */
  discard(item: Item): void {
    const at = this.#free.indexOf(item);
    if (at >= 0) this.#free.splice(at, 1);
    this.#created--;
    if (this.#waiting.size === 0 || this.#create === undefined) return;
    this.#created++;
    this.release(this.#create());
  }
}
