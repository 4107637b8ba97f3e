/** A page of output as it is read: pieces in order of offset, neighbours of one stream joined. */
import type { OutputStream } from "../model/outcome.js";
import type { OutputOptions, OutputPiece } from "../model/store.js";

export class OutputPageBuilder {
  at: number;
  /** Less was taken of a row than there was. */
  truncated = false;
  #bytesLeft: number;
  readonly #wanted: OutputStream | undefined;
  readonly #pieces: { stream: OutputStream; offset: number; end: number; parts: Uint8Array[] }[] = [];

  constructor({ from, limit, stream }: OutputOptions) {
    this.at = from;
    this.#bytesLeft = Math.max(1, limit);
    this.#wanted = stream;
  }

  get full(): boolean {
    return this.#bytesLeft === 0;
  }

  /** Adds bytes that begin at this offset; bytes before the page, or in it already, are skipped. */
  take(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    const fresh = bytes.subarray(Math.max(0, this.at - offset));
    if (fresh.length === 0) return;
    const start = Math.max(offset, this.at);
    if (this.#wanted !== undefined && stream !== this.#wanted) {
      this.at = start + fresh.length;
      return;
    }
    const part = fresh.subarray(0, this.#bytesLeft);
    this.truncated = part.length < fresh.length;
    this.at = start + part.length;
    this.#bytesLeft -= part.length;
    const last = this.#pieces.at(-1);
    if (last?.stream === stream && last.end === start) {
      last.parts.push(part);
      last.end = this.at;
    } else this.#pieces.push({ stream, offset: start, end: this.at, parts: [part] });
  }

  get pieces(): OutputPiece[] {
    return this.#pieces.map(({ stream, offset, parts }) => ({
      stream,
      offset,
      bytes: new Uint8Array(Buffer.concat(parts)),
    }));
  }
}
