/** First in, first out, with no step that grows with the length: an array's `shift` moves everything behind it. */
export class Fifo<T> implements Iterable<T> {
  #items: (T | undefined)[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  get front(): T | undefined {
    return this.#items[this.#head];
  }

  add(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    const item = this.#items[this.#head];
    if (item === undefined) return undefined;
    this.#items[this.#head++] = undefined;
    // Each item is moved at most once for every one that has left.
    if (this.#head >= 64 && this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  /** The first goes to the end. */
  rotate(): void {
    const item = this.shift();
    if (item !== undefined) this.add(item);
  }

  clear(): void {
    this.#items = [];
    this.#head = 0;
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let at = this.#head; at < this.#items.length; at++) yield this.#items[at] as T;
  }
}
