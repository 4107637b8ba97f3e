/**
 * Output of several tasks into one place without mixing their lines: what does not end a line waits for its end. A line that is
 * too long to wait for, or never ended, goes out as it is.
 */

export interface Sink {
  write(bytes: Uint8Array): unknown;
}

const NEWLINE = 10;
const LONGEST = 64 * 1024;

export class LineWriter {
  readonly #sink: Sink;
  readonly #tag: Buffer;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;

  /** `tag` stands before every line. */
  constructor(sink: Sink, tag = "") {
    this.#sink = sink;
    this.#tag = Buffer.from(tag);
  }

  write(bytes: Uint8Array): void {
    const end = bytes.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      this.#pending.push(bytes.subarray(0, end));
      this.#flush();
    }
    if (end === bytes.length) return;
    this.#pending.push(bytes.subarray(end));
    this.#pendingBytes += bytes.length - end;
    if (this.#pendingBytes > LONGEST) this.#flush();
  }

  /** The task writes no more. Where others follow, its last line is ended for it. */
  end(othersFollow: boolean): void {
    if (this.#pendingBytes === 0) return;
    if (othersFollow) this.#pending.push(Uint8Array.of(NEWLINE));
    this.#flush();
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#sink.write(this.#tag.length === 0 ? bytes : this.#tagged(bytes));
  }

  #tagged(bytes: Buffer): Buffer {
    const parts: Buffer[] = [];
    let from = 0;
    while (from < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, from);
      const to = newline < 0 ? bytes.length : newline + 1;
      parts.push(this.#tag, bytes.subarray(from, to));
      from = to;
    }
    return Buffer.concat(parts);
  }
}
