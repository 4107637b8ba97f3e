/** Cuts a stream into messages by their headers. A length past the limit is refused before a byte of it is kept. */
import { asLaboroError, badMessage, type LaboroError } from "../../base/errors.js";

export interface Layout {
  readonly headerSize: number;
  /** The size of the whole message that begins with this header; throws LABORO_BAD_MESSAGE where there is none. */
  readonly sizeOf: (header: Buffer) => number;
}

export interface FramerResult {
  readonly messages: readonly Buffer[];
  /** The stream cannot be read from here on. */
  readonly failure?: LaboroError;
}

export class Framer {
  readonly #layout: Layout;
  readonly #limit: number;
  /** What has come of a message that is not whole; grows with what comes, never with what is claimed. */
  #partial = Buffer.alloc(0);
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
    let rest = chunk;
    try {
      while (rest.length > 0) {
        if (this.#length > 0) {
          rest = this.#complete(rest, messages);
          continue;
        }
        const size = this.#sizeAt(rest);
        if (size === undefined || rest.length < size) {
          this.#append(rest, size ?? this.#layout.headerSize);
          break;
        }
        messages.push(rest.subarray(0, size));
        rest = rest.subarray(size);
      }
    } catch (cause) {
      this.#failure = asLaboroError(cause);
      this.#partial = Buffer.alloc(0);
      return { messages, failure: this.#failure };
    }
    return { messages };
  }

  /** Adds to the message that has begun, and gives what is left over. */
  #complete(chunk: Buffer, messages: Buffer[]): Buffer {
    const known = this.#sizeAt(this.#partial.subarray(0, this.#length));
    const size = known ?? this.#layout.headerSize;
    const part = chunk.subarray(0, size - this.#length);
    this.#append(part, size);
    // A header that is now whole may be a message of its own, or the beginning of one.
    if (known !== undefined || this.#sizeAt(this.#partial.subarray(0, this.#length)) === this.#length)
      this.#emit(size, messages);
    return chunk.subarray(part.length);
  }

  #emit(size: number, messages: Buffer[]): void {
    if (this.#length < size) return;
    messages.push(this.#partial.subarray(0, size));
    this.#partial = Buffer.alloc(0);
    this.#length = 0;
  }

  #sizeAt(bytes: Buffer): number | undefined {
    if (bytes.length < this.#layout.headerSize) return undefined;
    const size = this.#layout.sizeOf(bytes);
    if (size > this.#limit) {
      throw badMessage(`a message claims ${size} bytes, the limit is ${this.#limit}`);
    }
    return size;
  }

  #append(bytes: Buffer, size: number): void {
    const needed = this.#length + bytes.length;
    if (needed > this.#partial.length) {
      const wider = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(size, this.#partial.length * 2)));
      this.#partial.copy(wider, 0, 0, this.#length);
      this.#partial = wider;
    }
    bytes.copy(this.#partial, this.#length);
    this.#length = needed;
  }
}
