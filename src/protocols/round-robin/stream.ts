/**
 * Streams: answers in packets. The client requests one packet at a time, with the handle of the previous packet.
 * Compressed data is one zlib stream across all packets.
 */
import { constants, deflateSync, inflateSync } from "node:zlib";
import { LaboroError } from "../../base/errors.js";
import { keepLatest } from "../../base/keep-latest.js";
import { bodyOf, isFailure, makePacket, PACKET_HEAD, readPacket } from "./frames.js";

/** The body of a RESPONSE. Throws if it is the status failure. */
export function readReply(args: readonly Buffer[]): Buffer {
  if (isFailure(args)) throw failed("the round-robin worker answered with the status failure");
  return bodyOf(args);
}

/** Joins the packets of one stream. */
export class StreamReader {
  readonly #most: number;
  readonly #parts: Buffer[] = [];
  #size = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** The complete data, or the handle for the next packet. Throws for a stream that is aborted, too long or invalid. */
  take(frame: Buffer | undefined): Buffer | { readonly next: Buffer } {
    const packet = frame === undefined ? undefined : readPacket(frame);
    if (packet === undefined) throw failed("the answer is not a packet of a stream");
    if (packet.kind === "abort") throw failed("the stream was aborted");
    this.#size += packet.data.length;
    if (this.#size > this.#most) throw this.#tooLarge();
    this.#parts.push(packet.data);
    if (packet.kind === "more") return { next: packet.handle };
    const all = Buffer.concat(this.#parts);
    return packet.zlib ? this.#inflate(all) : all;
  }

  #inflate(data: Buffer): Buffer {
    try {
      return inflateSync(data, { maxOutputLength: this.#most, finishFlush: constants.Z_SYNC_FLUSH });
    } catch (cause) {
      if (cause instanceof RangeError) throw this.#tooLarge();
      throw new LaboroError("LABORO_SERVICE_FAILED", `the stream is not zlib: ${String(cause)}`, { cause });
    }
  }

  #tooLarge(): LaboroError {
    return new LaboroError("LABORO_BODY_TOO_LARGE", `a stream of more than ${this.#most} bytes`);
  }
}

const failed = (why: string): LaboroError => new LaboroError("LABORO_SERVICE_FAILED", why);

/** Data in packets of at most `packetBytes`, headers included; at least one. */
export function* packetsOf(data: Buffer, handle: Buffer, packetBytes: number, zlib = false): Generator<Buffer> {
  const packed = zlib ? deflateSync(data) : data;
  const dataBytes = packetBytes - PACKET_HEAD;
  let at = 0;
  do {
    const part = packed.subarray(at, at + dataBytes);
    at += dataBytes;
    yield makePacket({ kind: at < packed.length ? "more" : "finished", zlib, handle, data: part });
  } while (at < packed.length);
}

const PACKET_BYTES = 8_192;
const IDLE_TIMEOUT_MS = 60_000;
const MAX_STREAMS = 1_000;

interface OpenStream {
  readonly packets: Iterator<Buffer>;
  readonly host: string;
  /** One packet ahead, so that the end is known. */
  next: Buffer | undefined;
  lastUsed: number;
}

/** The streams that a worker is sending. Each is kept until its last packet is sent, or until it was idle too long. */
export class StreamSources {
  readonly #streams = new Map<string, OpenStream>();
  readonly #now: () => number;
  #handles = 0;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  get size(): number {
    return this.#streams.size;
  }

  /** The first packet of a new stream. */
  begin(data: Buffer, host: Buffer, zlib = false): Buffer {
    this.#removeIdle();
    const handle = Buffer.alloc(8);
    handle.writeUInt32LE(++this.#handles >>> 0);
    const packets = packetsOf(data, handle, PACKET_BYTES, zlib);
    const first = packets.next().value ?? Buffer.alloc(0);
    const next = packets.next().value ?? undefined;
    if (next !== undefined) {
      const source = { packets, host: host.toString("latin1"), next, lastUsed: this.#now() };
      this.#streams.set(handle.toString("hex"), source);
      keepLatest(this.#streams, MAX_STREAMS);
    }
    return first;
  }

  /** The next packet; undefined for an unknown handle. */
  nextPacket(host: Buffer | undefined, handle: Buffer | undefined): Buffer | undefined {
    const key = handle?.toString("hex") ?? "";
    const source = this.#streams.get(key);
    if (source === undefined || source.host !== host?.toString("latin1")) return undefined;
    const packet = source.next;
    source.next = source.packets.next().value ?? undefined;
    source.lastUsed = this.#now();
    if (source.next === undefined) this.#streams.delete(key);
    return packet;
  }

  /** The reader of these streams is alive. Returns false if it reads no stream. */
  keepAlive(host: Buffer | undefined): boolean {
    const wanted = host?.toString("latin1");
    const sources = [...this.#streams.values()].filter((source) => source.host === wanted);
    for (const source of sources) source.lastUsed = this.#now();
    return sources.length > 0;
  }

  #removeIdle(): void {
    const old = this.#now() - IDLE_TIMEOUT_MS;
    for (const [key, { lastUsed }] of this.#streams) if (lastUsed < old) this.#streams.delete(key);
  }
}

const PIECE_HEAD = 8;
const FILLING = 1;

/** Data of the test stream: pieces of an offset, a length and that many bytes of 01; `size` bytes in all. */
export function testData(size: number): Buffer {
  const pieces: Buffer[] = [];
  for (let left = size; left > 0; ) {
    const length = Math.min(left, 1 + Math.floor(Math.random() * size));
    const piece = Buffer.alloc(PIECE_HEAD + length, FILLING);
    piece.writeInt32LE(Math.floor(Math.random() * (size - length + 1)), 0);
    piece.writeInt32LE(length, 4);
    pieces.push(piece);
    left -= length;
  }
  return Buffer.concat(pieces);
}

export function testDataError(data: Buffer, size: number): string | undefined {
  let got = 0;
  for (let at = 0; at < data.length; ) {
    if (data.length - at < PIECE_HEAD) return `${data.length - at} bytes after the last piece`;
    const offset = data.readInt32LE(at);
    const length = data.readInt32LE(at + 4);
    if (length < 0 || offset < 0 || offset + length > size) return `a piece of ${length} bytes at ${offset}`;
    const piece = data.subarray(at + PIECE_HEAD, at + PIECE_HEAD + length);
    if (piece.length < length) return `a piece of ${length} bytes has ${piece.length}`;
    if (piece.some((byte) => byte !== FILLING)) return `other bytes than 01 at ${offset}`;
    got += length;
    at += PIECE_HEAD + length;
  }
  return got === size ? undefined : `${got} bytes, where ${size} were asked for`;
}
