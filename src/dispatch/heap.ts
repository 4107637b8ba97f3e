/** A binary heap that knows where each item is, so that any item can be moved or removed in O(log n). */
export class IndexedHeap<T> {
  readonly #before: (a: T, b: T) => boolean;
  readonly #items: T[] = [];
  readonly #positions = new Map<T, number>();

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  get size(): number {
    return this.#items.length;
  }

  has(item: T): boolean {
    return this.#positions.has(item);
  }

  peek(): T | undefined {
    return this.#items[0];
  }

  /** The item that is on top once the top is gone. */
  peekSecond(): T | undefined {
    const left = this.#items[1];
    const right = this.#items[2];
    return right !== undefined && this.#before(right, left as T) ? right : left;
  }

  /** Adds an item, or moves it to its place after its order has changed. */
  upsert(item: T): void {
    const at = this.#positions.get(item);
    if (at === undefined) {
      this.#items.push(item);
      this.#up(this.#items.length - 1, item);
    } else if (!this.#up(at, item)) {
      this.#down(at, item);
    }
  }

  remove(item: T): boolean {
    const at = this.#positions.get(item);
    if (at === undefined) return false;
    this.#positions.delete(item);
    const last = this.#items.pop();
    if (last !== undefined && last !== item) {
      this.#set(at, last);
      if (!this.#up(at, last)) this.#down(at, last);
    }
    return true;
  }

  pop(): T | undefined {
    const top = this.#items[0];
    if (top !== undefined) this.remove(top);
    return top;
  }

  /** In no particular order. */
  [Symbol.iterator](): IterableIterator<T> {
    return this.#items[Symbol.iterator]();
  }

  #set(at: number, item: T): void {
    this.#items[at] = item;
    this.#positions.set(item, at);
  }

  #up(from: number, item: T): boolean {
    let at = from;
    while (at > 0) {
      const parentAt = (at - 1) >> 1;
      const parent = this.#items[parentAt] as T;
      if (!this.#before(item, parent)) break;
      this.#set(at, parent);
      at = parentAt;
    }
    this.#set(at, item);
    return at !== from;
  }

  #down(from: number, item: T): void {
    let at = from;
    for (;;) {
      let childAt = 2 * at + 1;
      if (childAt >= this.#items.length) break;
      const right = childAt + 1;
      if (right < this.#items.length && this.#before(this.#items[right] as T, this.#items[childAt] as T))
        childAt = right;
      const child = this.#items[childAt] as T;
      if (!this.#before(child, item)) break;
      this.#set(at, child);
      at = childAt;
    }
    this.#set(at, item);
  }
}
