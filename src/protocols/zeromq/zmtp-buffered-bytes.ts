/** Bytes that are buffered for all connections of a bound socket: of messages that have not come whole, and of messages under way. */
import type { Limits } from "./types.js";

/** A connection, as far as it can be given up. */
interface Droppable {
  destroy(why: string): void;
}

export class BufferedBytes {
  readonly #limits: Pick<Limits, "partialBytesInAll" | "queueBytesInAll">;
  /** By connection, where there are any. */
  readonly #partial = new Map<Droppable, number>();
  #partialBytes = 0;
  #queuedBytes = 0;

  constructor(limits: Pick<Limits, "partialBytesInAll" | "queueBytesInAll">) {
    this.#limits = limits;
  }

  /** So many bytes of this connection's next message have come. Beyond the bound the connection that has the most is given up. */
  setPartial(connection: Droppable, bytes: number): void {
    const before = this.#partial.get(connection) ?? 0;
    if (before === bytes) return;
    this.#partialBytes += bytes - before;
    if (bytes === 0) this.#partial.delete(connection);
    else this.#partial.set(connection, bytes);
    if (this.#partialBytes <= this.#limits.partialBytesInAll) return;
    const [largest] = [...this.#partial].reduce((a, b) => (b[1] > a[1] ? b : a));
    this.setPartial(largest, 0);
    largest.destroy(`more than ${this.#limits.partialBytesInAll} bytes of unfinished messages have come`);
  }

  /** False where too much is under way already. */
  queue(bytes: number): boolean {
    if (this.#queuedBytes + bytes > this.#limits.queueBytesInAll) return false;
    this.#queuedBytes += bytes;
    return true;
  }

  unqueue(bytes: number): void {
    this.#queuedBytes -= bytes;
  }
}
