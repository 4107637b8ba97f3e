/**
 * Output that is not kept, on its way to the clients that follow the job. Holds what they have not taken yet, in memory, so that it
 * can be sent again after a reconnect. It never refuses a write: while it is full, its owner stops reading the task's pipes.
 */
import type { OutputStream } from "../model/outcome.js";
import { OUTPUT_CHUNK } from "../protocols/laboro/messages.js";
import type { UnsentOutput } from "./spool/output-buffer.js";

/** Bytes of one task that may be sent and not yet taken. */
const WINDOW = 1024 * 1024;

export class RelayBuffer {
  readonly #chunks: UnsentOutput[] = [];
  #bytes = 0;
  /** How many of the chunks are sent, and their bytes. */
  #sent = 0;
  #sentBytes = 0;

  get empty(): boolean {
    return this.#chunks.length === 0;
  }

  get full(): boolean {
    return this.#bytes >= WINDOW;
  }

  write(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += OUTPUT_CHUNK) {
      this.#chunks.push({ stream, offset: offset + at, bytes: bytes.subarray(at, at + OUTPUT_CHUNK) });
    }
    this.#bytes += bytes.length;
  }

  /** The next chunk to send; undefined while there is none, or the window is full. */
  next(): UnsentOutput | undefined {
    const chunk = this.#chunks[this.#sent];
    if (chunk === undefined || this.#sentBytes >= WINDOW) return undefined;
    this.#sent++;
    this.#sentBytes += chunk.bytes.length;
    return chunk;
  }

  /** Everything before this offset was taken. */
  markTaken(end: number): void {
    for (let first = this.#chunks[0]; first !== undefined; first = this.#chunks[0]) {
      if (first.offset + first.bytes.length > end) return;
      this.#chunks.shift();
      this.#bytes -= first.bytes.length;
      if (this.#sent === 0) continue;
      this.#sent--;
      this.#sentBytes -= first.bytes.length;
    }
  }

  /** A new connection: all that was not taken is sent again. */
  rewind(): void {
    this.#sent = 0;
    this.#sentBytes = 0;
  }
}
