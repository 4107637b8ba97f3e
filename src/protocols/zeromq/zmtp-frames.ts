/**
 * Frames of ZMTP 3: one byte of flags, the length in one byte or in eight, the body. Pure: bytes in, bytes out. A message is frames with
 * MORE up to one without; a command is one frame of its own.
 */
import { badMessage, type LaboroError } from "../../base/errors.js";
import type { Limits } from "./types.js";

const MORE = 1;
const LONG = 2;
const COMMAND = 4;

/** What the peer sent is not ZMTP 3. */
export const zmtpError = (what: string): LaboroError => badMessage(`not ZMTP 3: ${what}`);

export type Incoming =
  | { readonly kind: "message"; readonly frames: readonly Buffer[] }
  | { readonly kind: "command"; readonly body: Buffer }
  /** A message over a limit, of which this is the beginning. The rest is read and thrown away. */
  | { readonly kind: "dropped"; readonly why: string; readonly head: readonly Buffer[] };

const headerSize = (length: number): number => (length > 255 ? 9 : 2);

export function messageSize(frames: readonly Uint8Array[]): number {
  let size = 0;
  for (const { length } of frames) size += headerSize(length) + length;
  return size;
}

/** Puts a message at `at` and gives the position behind it. */
export function writeMessage(into: Buffer, at: number, frames: readonly Uint8Array[]): number {
  let end = at;
  const last = frames.length - 1;
  for (let i = 0; i <= last; i++) end = writeFrame(into, end, i < last ? MORE : 0, frames[i] as Uint8Array);
  return end;
}

export function encodeMessage(frames: readonly Uint8Array[]): Buffer {
  const bytes = Buffer.allocUnsafe(messageSize(frames));
  writeMessage(bytes, 0, frames);
  return bytes;
}

export function encodeCommand(body: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(headerSize(body.length) + body.length);
  writeFrame(bytes, 0, COMMAND, body);
  return bytes;
}

function writeFrame(into: Buffer, at: number, flags: number, body: Uint8Array): number {
  const { length } = body;
  const start = at + headerSize(length);
  if (length > 255) {
    into[at] = flags | LONG;
    into.writeUInt32BE(0, at + 1);
    into.writeUInt32BE(length, at + 5);
  } else {
    into[at] = flags;
    into[at + 1] = length;
  }
  into.set(body, start);
  return start + length;
}

/** More pieces than this are joined: a piece costs more than its bytes. */
const MAX_PIECES = 1_000;
/** Frames that are kept of a message over a limit. */
const HEAD_FRAMES = 8;
/** A message of so many times the limit is not read to its end. */
const MAX_DROPPED = 16;
const EMPTY = Buffer.alloc(0);

/** Takes bytes as they come, and gives what has become whole. Throws for what is not ZMTP; then nothing more may be pushed. */
export class FrameReader {
  readonly #limits: Pick<Limits, "frames" | "messageBytes">;
  #chunks: Buffer[] = [];
  #size = 0;
  /** Bytes that are needed before the next frame can be read. */
  #need = 2;
  #frames: Buffer[] = [];
  #frameCount = 0;
  #messageBytes = 0;
  /** The message that is being read is over a limit; so many of its bytes were thrown away. */
  #dropped: number | undefined;
  /** The rest of a frame that is thrown away. */
  #skip = { bytes: 0, flags: 0 };

  constructor(limits: Pick<Limits, "frames" | "messageBytes">) {
    this.#limits = limits;
  }

  /** Bytes that are kept of a message that is not whole. */
  get partialBytes(): number {
    return this.#size + this.#messageBytes;
  }

  push(received: Buffer, found: (incoming: Incoming) => void): void {
    const chunk = this.#skip.bytes > 0 ? this.#skipBytes(received, found) : received;
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size < this.#need) {
      if (this.#chunks.length > MAX_PIECES) this.#chunks = [Buffer.concat(this.#chunks, this.#size)];
      return;
    }
    const bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#size);
    let at = 0;
    this.#need = 2;
    while (bytes.length - at >= 2) {
      const flags = bytes[at] as number;
      if (flags > 6 || flags === (COMMAND | MORE)) throw zmtpError(`a frame with the flags ${flags}`);
      const start = at + ((flags & LONG) === 0 ? 2 : 9);
      if (bytes.length < start) {
        this.#need = start - at;
        break;
      }
      const length = (flags & LONG) === 0 ? (bytes[at + 1] as number) : longLength(bytes, at + 1);
      if (this.#exceedsLimit(flags, length, found)) {
        at = bytes.length;
        this.#skip = { bytes: length, flags };
        const rest = this.#skipBytes(bytes.subarray(start), found);
        at -= rest.length;
        continue;
      }
      if (bytes.length < start + length) {
        this.#need = start + length - at;
        break;
      }
      at = start + length;
      this.#frame(flags, bytes.subarray(start, at), found);
    }
    this.#size = bytes.length - at;
    this.#chunks = this.#size === 0 ? [] : [bytes.subarray(at)];
  }

  /** Whether the next frame belongs to a message over a limit. Throws where that is not even read to its end. */
  #exceedsLimit(flags: number, length: number, found: (incoming: Incoming) => void): boolean {
    const { messageBytes } = this.#limits;
    const isCommand = (flags & COMMAND) !== 0;
    const size = isCommand ? length : (this.#dropped ?? this.#messageBytes) + length;
    if (size > (isCommand ? 1 : MAX_DROPPED) * messageBytes) throw zmtpError(`a message of ${size} bytes or more`);
    if (isCommand || (this.#dropped === undefined && size <= messageBytes)) return false;
    if (this.#dropped === undefined) this.#drop(`a message of more than ${messageBytes} bytes`, found);
    this.#dropped = size;
    return true;
  }

  #drop(why: string, found: (incoming: Incoming) => void): void {
    const head = this.#frames.slice(0, HEAD_FRAMES);
    this.#frames = [];
    this.#dropped = this.#messageBytes;
    this.#messageBytes = 0;
    found({ kind: "dropped", why, head });
  }

  /** What follows the frame that is thrown away. */
  #skipBytes(bytes: Buffer, found: (incoming: Incoming) => void): Buffer {
    const { bytes: left, flags } = this.#skip;
    this.#skip = { bytes: Math.max(0, left - bytes.length), flags };
    if (this.#skip.bytes > 0) return EMPTY;
    this.#frame(flags, EMPTY, found);
    return bytes.subarray(left);
  }

  #frame(flags: number, body: Buffer, found: (incoming: Incoming) => void): void {
    if ((flags & COMMAND) !== 0) {
      // A command may come between the frames of a message.
      found({ kind: "command", body });
      return;
    }
    const { frames: limit } = this.#limits;
    if (++this.#frameCount > limit && this.#dropped === undefined)
      this.#drop(`a message of more than ${limit} frames`, found);
    if (this.#dropped === undefined) {
      this.#frames.push(body);
      this.#messageBytes += body.length;
    }
    if ((flags & MORE) !== 0) return;
    const frames = this.#dropped === undefined ? this.#frames : undefined;
    this.#frames = [];
    this.#frameCount = 0;
    this.#messageBytes = 0;
    this.#dropped = undefined;
    if (frames !== undefined) found({ kind: "message", frames });
  }
}

function longLength(bytes: Buffer, at: number): number {
  const high = bytes.readUInt32BE(at);
  return high * 2 ** 32 + bytes.readUInt32BE(at + 4);
}
