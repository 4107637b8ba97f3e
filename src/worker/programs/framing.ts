/**
 * The framing of requests and replies on the standard input and output of a persistent program:
 *   lines    one line in, one line out. The line ending is not part of the message
 *   length   four bytes, big-endian: the number of bytes that follow; then these. Both ways
 * Pure functions on bytes.
 */
import { LaboroError } from "../../base/errors.js";

export type FramingName = "lines" | "length";

export interface FrameReader {
  /** The messages that these bytes complete. Throws LABORO_BODY_TOO_LARGE. */
  push(bytes: Buffer): Buffer[];
}

export interface Framing {
  /** Throws LABORO_BAD_INPUT for a body that cannot be sent this way. */
  encode(body: Uint8Array): Uint8Array;
  reader(limit: number): FrameReader;
}

const NEWLINE = 0x0a;
const LENGTH_BYTES = 4;

export const FRAMINGS: Readonly<Record<FramingName, Framing>> = {
  lines: {
    encode: (body) => {
      const line = body.at(-1) === NEWLINE ? body.subarray(0, -1) : body;
      if (!line.includes(NEWLINE)) return Buffer.concat([line, Buffer.of(NEWLINE)]);
      throw new LaboroError("LABORO_BAD_INPUT", "the body has several lines, this service takes one");
    },
    reader: (limit) => new LineReader(limit),
  },
  length: {
    encode: (body) => {
      const head = Buffer.alloc(LENGTH_BYTES);
      head.writeUInt32BE(body.length);
      return Buffer.concat([head, body]);
    },
    reader: (limit) => new LengthReader(limit),
  },
};

/** Received bytes that are not yet a whole message. */
class ByteQueue {
  #pieces: Buffer[] = [];
  length = 0;

  push(piece: Buffer): void {
    if (piece.length === 0) return;
    this.#pieces.push(piece);
    this.length += piece.length;
  }

  /** Removes the first `count` bytes, which must have been received. */
  take(count: number): Buffer {
    const all = this.#pieces.length === 1 ? (this.#pieces[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#pieces);
    const rest = all.subarray(count);
    this.#pieces = rest.length === 0 ? [] : [rest];
    this.length = rest.length;
    return all.subarray(0, count);
  }
}

class LineReader implements FrameReader {
  readonly #limit: number;
  readonly #pieces = new ByteQueue();

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(bytes: Buffer): Buffer[] {
    const lines: Buffer[] = [];
    let from = 0;
    for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, from)) {
      this.#pieces.push(bytes.subarray(from, at));
      checkLength(this.#pieces.length, this.#limit);
      lines.push(withoutReturn(this.#pieces.take(this.#pieces.length)));
      from = at + 1;
    }
    this.#pieces.push(bytes.subarray(from));
    checkLength(this.#pieces.length, this.#limit);
    return lines;
  }
}

class LengthReader implements FrameReader {
  readonly #limit: number;
  readonly #pieces = new ByteQueue();
  #expected: number | undefined;

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(bytes: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    this.#pieces.push(bytes);
    for (;;) {
      if (this.#expected === undefined) {
        if (this.#pieces.length < LENGTH_BYTES) return messages;
        this.#expected = this.#pieces.take(LENGTH_BYTES).readUInt32BE();
        checkLength(this.#expected, this.#limit);
      }
      if (this.#pieces.length < this.#expected) return messages;
      messages.push(this.#pieces.take(this.#expected));
      this.#expected = undefined;
    }
  }
}

const withoutReturn = (line: Buffer): Buffer => (line.at(-1) === 0x0d ? line.subarray(0, -1) : line);

function checkLength(length: number, limit: number): void {
  if (length <= limit) return;
  throw new LaboroError("LABORO_BODY_TOO_LARGE", `the reply has ${length} bytes or more, the limit is ${limit}`);
}
