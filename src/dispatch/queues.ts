/** The queues of dispatch: a heap, a FIFO, and the tasks of a job. */
import type { WorkerId } from "../model/ids.js";
import type { WaitingRange } from "./state.js";

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

  /** The item on top after the removal of the first. */
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

  clear(): void {
    this.#items.length = 0;
    this.#positions.clear();
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

/** First in, first out, at constant cost. An array's `shift` moves all other items. */
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
    // Each item is moved at most once for each removed one.
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

/** How many ranges are skipped to find one that did not fail at this worker. */
const MAX_SKIPPED = 8;

/**
 * The waiting tasks of a job. Tasks that were assigned before go first, so that a batch does not end with its oldest
 * tasks. Each of the two lists is first in, first out. Every step costs O(1), however many ranges wait.
 */
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
