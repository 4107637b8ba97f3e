/** Cuts a stream into messages by their headers. A length past the limit is refused before a byte of it is kept. */
import { asLaboroError, badMessage, type LaboroError } from "../../base/errors.js";

export interface Layout {
  readonly headerSize: number;
  /** The size of the whole message that begins with this header; throws LABORO_BAD_MESSAGE where there is none. */
  readonly sizeOf: (header: Buffer) => number;
}

interface FramerResult {
  readonly messages: readonly Buffer[];
  /** The stream cannot be read from here on. */
  readonly failure?: LaboroError;
}

const NOTHING = Buffer.alloc(0);

export class Framer {
  readonly #layout: Layout;
  readonly #limit: number;
  /** What has come of a message that is not whole, and room for more; grows with what comes, never with what is claimed. */
  #partial = NOTHING;
  #length = 0;
  #failure: LaboroError | undefined;

  constructor(layout: Layout, limit: number) {
    this.#layout = layout;
    this.#limit = limit;
  }

  /** Bytes of a message that has begun. */
  get pending(): number {
    return this.#length;
  }

  /** The messages are views; they live as long as the bytes they were cut from. */
  push(chunk: Buffer): FramerResult {
    if (this.#failure !== undefined) return { messages: [], failure: this.#failure };
    const messages: Buffer[] = [];
    let rest = this.#length === 0 ? chunk : this.#append(chunk);
    try {
      for (let size = this.#sizeOf(rest); size <= rest.length; size = this.#sizeOf(rest)) {
        messages.push(rest.subarray(0, size));
        rest = rest.subarray(size);
      }
    } catch (cause) {
      this.#failure = asLaboroError(cause);
      this.#partial = NOTHING;
      return { messages, failure: this.#failure };
    }
    if (rest.length !== this.#length) {
      // The messages are views of the old bytes.
      this.#partial = NOTHING;
      this.#length = 0;
      this.#append(rest);
    }
    return { messages };
  }

  /** Of the whole message, or of its header while that is not whole. */
  #sizeOf(bytes: Buffer): number {
    if (bytes.length < this.#layout.headerSize) return this.#layout.headerSize;
    const size = this.#layout.sizeOf(bytes);
    if (size > this.#limit) throw badMessage(`a message claims ${size} bytes, the limit is ${this.#limit}`);
    return size;
  }

  /** All that is kept now. */
  #append(bytes: Buffer): Buffer {
    const needed = this.#length + bytes.length;
    if (needed > this.#partial.length) {
      const wider = Buffer.allocUnsafeSlow(Math.max(needed, this.#partial.length * 2));
      this.#partial.copy(wider, 0, 0, this.#length);
      this.#partial = wider;
    }
    bytes.copy(this.#partial, this.#length);
    this.#length = needed;
    return this.#partial.subarray(0, needed);
  }
}
