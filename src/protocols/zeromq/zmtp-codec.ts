/**
 * ZMTP 3 as bytes (RFC 23, 37). Pure.
 *
 * Both ends begin with a greeting of 64 bytes: signature, version, mechanism. Frames follow: one byte of flags, the
 * length in one byte or in eight, the body. A message is frames with MORE up to one without. A command is one frame: a
 * name, and what follows it. READY carries properties, PING a time to live and a context.
 */
import { badMessage, LaboroError } from "../../base/errors.js";
import type { Limits } from "./types.js";

export const zmtpError = (what: string): LaboroError => badMessage(`not ZMTP 3: ${what}`);

// The greeting

export const GREETING_SIZE = 64;
/** A peer of an older version sends no more than this before it waits. */
const VERSION_AT = 10;
const MECHANISM_AT = 12;
const MECHANISM_SIZE = 20;
const AS_SERVER_AT = 32;

export interface Greeting {
  readonly mechanism: string;
  readonly isServer: boolean;
}

export function encodeGreeting({ mechanism, isServer }: Greeting = { mechanism: "NULL", isServer: false }): Buffer {
  const bytes = Buffer.alloc(GREETING_SIZE);
  bytes[0] = 0xff;
  bytes[9] = 0x7f;
  bytes[VERSION_AT] = 3;
  bytes[VERSION_AT + 1] = 1;
  bytes.write(mechanism, MECHANISM_AT, "latin1");
  bytes[AS_SERVER_AT] = isServer ? 1 : 0;
  return bytes;
}

/** Undefined while it is incomplete. Throws as soon as it cannot be a greeting. */
export function readGreeting(bytes: Buffer): (Greeting & { readonly minor: number }) | undefined {
  if (bytes.length > 0 && bytes[0] !== 0xff) throw zmtpError("the first byte is not FF");
  if (bytes.length > 9 && bytes[9] !== 0x7f) throw zmtpError("the signature does not end with 7F");
  const version = bytes[VERSION_AT] ?? 3;
  if (version < 3)
    throw new LaboroError("LABORO_VERSION", `ZMTP revision ${version}, expected 3.0 (ZeroMQ 4) or later`);
  if (bytes.length < GREETING_SIZE) return undefined;
  const mechanism = bytes.toString("latin1", MECHANISM_AT, MECHANISM_AT + MECHANISM_SIZE).replace(/\0+$/, "");
  return { minor: bytes[VERSION_AT + 1] ?? 0, mechanism, isServer: bytes[AS_SERVER_AT] === 1 };
}

// Commands

/** A longer context of a PING is not returned in full. */
const MAX_CONTEXT = 16;
const MAX_PROPERTIES = 100;

export function readCommand(frame: Buffer): { readonly name: string; readonly body: Buffer } {
  const length = frame[0] ?? 0;
  if (length === 0 || frame.length < 1 + length) throw zmtpError("a command without a name");
  return { name: frame.toString("latin1", 1, 1 + length), body: frame.subarray(1 + length) };
}

export const makeCommand = (name: string, body: Uint8Array = new Uint8Array(0)): Buffer =>
  Buffer.concat([shortText(name), body]);

const shortText = (text: string): Buffer => Buffer.concat([Buffer.of(text.length), Buffer.from(text, "latin1")]);

/** By name in lower case: names are compared without regard to case. */
export function readProperties(body: Buffer): ReadonlyMap<string, Buffer> {
  const found = new Map<string, Buffer>();
  let at = 0;
  while (at < body.length) {
    const nameEnd = at + 1 + (body[at] as number);
    if (nameEnd + 4 > body.length) throw zmtpError("properties that end in the middle");
    const end = nameEnd + 4 + body.readUInt32BE(nameEnd);
    if (end > body.length) throw zmtpError("a property longer than its command");
    if (found.size >= MAX_PROPERTIES) throw zmtpError(`more than ${MAX_PROPERTIES} properties`);
    found.set(body.toString("latin1", at + 1, nameEnd).toLowerCase(), body.subarray(nameEnd + 4, end));
    at = end;
  }
  return found;
}

export function makeProperties(properties: Readonly<Record<string, Uint8Array>>): Buffer {
  const parts = Object.entries(properties).flatMap(([name, value]) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(value.length);
    return [shortText(name), length, value];
  });
  return Buffer.concat(parts);
}

/** With a TTL of 0, as libzmq sends by default: the peer need not disconnect when nothing follows. */
export const PING = makeCommand("PING", Buffer.alloc(2));

export const pongTo = (ping: Buffer): Buffer => makeCommand("PONG", ping.subarray(2, 2 + MAX_CONTEXT));

export const makeError = (why: string): Buffer => makeCommand("ERROR", shortText(why.slice(0, 255)));

/** 400 is what a server of CURVE answers to a key that it does not know. */
export function readError(body: Buffer): string {
  const why = body.toString("latin1", 1, 1 + (body[0] ?? 0));
  return why === "400" ? "this CURVE key is not known there (400)" : why;
}

// Frames

const MORE = 1;
const LONG = 2;
const COMMAND = 4;

export type Incoming =
  | { readonly kind: "message"; readonly frames: readonly Buffer[] }
  | { readonly kind: "command"; readonly body: Buffer }
  /** A message over a limit, with its first frames. The rest is dropped. */
  | { readonly kind: "dropped"; readonly why: string; readonly head: readonly Buffer[] };

export const frameHeaderSize = (length: number): number => (length > 255 ? 9 : 2);

export function messageSize(frames: readonly Uint8Array[]): number {
  let size = 0;
  for (const { length } of frames) size += frameHeaderSize(length) + length;
  return size;
}

/** Writes a message at `at`. Returns the position after it. */
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

export const encodeCommand = (body: Uint8Array): Buffer => encodeFrame(COMMAND, body);

export function encodeFrame(flags: number, body: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(frameHeaderSize(body.length) + body.length);
  writeFrame(bytes, 0, flags, body);
  return bytes;
}

/** The frames that `writeFrame` has written here. */
export function* framesIn(bytes: Buffer): Generator<{ readonly flags: number; readonly body: Buffer }> {
  for (let at = 0; at < bytes.length; ) {
    const flags = bytes[at] as number;
    const isLong = (flags & LONG) !== 0;
    const start = at + (isLong ? 9 : 2);
    const end = start + (isLong ? bytes.readUInt32BE(at + 5) : (bytes[at + 1] as number));
    yield { flags, body: bytes.subarray(start, end) };
    at = end;
  }
}

export function writeFrame(into: Buffer, at: number, flags: number, body: Uint8Array): number {
  const { length } = body;
  const start = at + frameHeaderSize(length);
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

/** More chunks than this are joined: a chunk costs more than its bytes. */
const MAX_CHUNKS = 1_000;
/** Frames that are kept of a message over a limit. */
const HEAD_FRAMES = 8;
/** A message of this many times the limit is an error. */
const MAX_DROPPED = 16;
const EMPTY = Buffer.alloc(0);

/** Reads messages and commands from chunks of a stream. Throws for what is not ZMTP, and cannot be used after that. */
export class FrameReader {
  readonly #limits: Pick<Limits, "frames" | "messageBytes">;
  #chunks: Buffer[] = [];
  #size = 0;
  /** Bytes that are needed to read the next frame. */
  #need = 2;
  #frames: Buffer[] = [];
  #frameCount = 0;
  #messageBytes = 0;
  /** The bytes so far of a message over a limit. */
  #dropped: number | undefined;
  /** The rest of a frame that is dropped. */
  #skip = { bytes: 0, flags: 0 };

  constructor(limits: Pick<Limits, "frames" | "messageBytes">) {
    this.#limits = limits;
  }

  /** Bytes that are kept of an incomplete message. */
  get partialBytes(): number {
    return this.#size + this.#messageBytes;
  }

  push(received: Buffer, found: (incoming: Incoming) => void): void {
    const chunk = this.#skip.bytes > 0 ? this.#skipBytes(received, found) : received;
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size < this.#need) {
      if (this.#chunks.length > MAX_CHUNKS) this.#chunks = [Buffer.concat(this.#chunks, this.#size)];
      return;
    }
    const bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#size);
    let at = 0;
    this.#need = 2;
    while (bytes.length - at >= 2) {
      const flags = bytes[at] as number;
      if (flags > 6 || flags === (COMMAND | MORE)) throw zmtpError(`a frame with the flags ${flags}`);
      const isLong = (flags & LONG) !== 0;
      const start = at + (isLong ? 9 : 2);
      if (bytes.length < start) {
        this.#need = start - at;
        break;
      }
      const length = isLong ? Number(bytes.readBigUInt64BE(at + 1)) : (bytes[at + 1] as number);
      if (this.#exceedsLimit(flags, length, found)) {
        this.#skip = { bytes: length, flags };
        at = bytes.length - this.#skipBytes(bytes.subarray(start), found).length;
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

  /** Whether the next frame belongs to a message over a limit. Throws if the message is not even skipped. */
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

  /** Returns the bytes after the frame that is dropped. */
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
