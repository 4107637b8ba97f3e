/**
 * Streams: an answer in packets. Byte 0 says `0` more, `1` abort or `2` finished; byte 1 `R` raw or `Z` zlib, one zlib stream through all
 * packets; byte 2 is the length of the handle, 08; the handle follows, by which the next packet is asked for (mqs_more); the rest is data.
 */
import { constants, deflateSync, inflateSync } from "node:zlib";
import { LaboroError } from "../../base/errors.js";

const MORE = 0x30;
const ABORT = 0x31;
const FINISHED = 0x32;
const RAW = 0x52;
const ZLIB = 0x5a;
const HANDLE_SIZE = 8;
const DATA_AT = 3 + HANDLE_SIZE;

export interface Packet {
  readonly kind: "more" | "abort" | "finished";
  readonly zlib: boolean;
  readonly handle: Buffer;
  readonly data: Buffer;
}

const KINDS: Readonly<Record<number, Packet["kind"]>> = { [MORE]: "more", [ABORT]: "abort", [FINISHED]: "finished" };

export function readPacket(frame: Buffer): Packet | undefined {
  const kind = KINDS[frame[0] ?? 0];
  const packing = frame[1];
  if (kind === undefined || (packing !== RAW && packing !== ZLIB)) return undefined;
  if (frame[2] !== HANDLE_SIZE || frame.length < DATA_AT) return undefined;
  return { kind, zlib: packing === ZLIB, handle: frame.subarray(3, DATA_AT), data: frame.subarray(DATA_AT) };
}

export function makePacket({ kind, zlib, handle, data }: Packet): Buffer {
  const first = kind === "more" ? MORE : kind === "abort" ? ABORT : FINISHED;
  return Buffer.concat([Buffer.from([first, zlib ? ZLIB : RAW, HANDLE_SIZE]), handle, data]);
}

/** Data in packets of at most `packetBytes`, headers included; at least one. */
export function* packetsOf(data: Buffer, handle: Buffer, packetBytes: number, zlib = false): Generator<Buffer> {
  const packed = zlib ? deflateSync(data) : data;
  const dataBytes = packetBytes - DATA_AT;
  let at = 0;
  do {
    const part = packed.subarray(at, at + dataBytes);
    at += dataBytes;
    yield makePacket({ kind: at < packed.length ? "more" : "finished", zlib, handle, data: part });
  } while (at < packed.length);
}

/** Puts the packets of one stream together. */
export class StreamReader {
  readonly #most: number;
  readonly #parts: Buffer[] = [];
  #size = 0;
  #zlib = false;

  constructor(most: number) {
    this.#most = most;
  }

  /** All of its data once it is finished. Throws where it was aborted, is none, or is too long. */
  take(frame: Buffer | undefined): Buffer | { readonly next: Buffer } {
    const packet = frame === undefined ? undefined : readPacket(frame);
    if (packet === undefined) throw failed("the answer is not a packet of a stream");
    if (packet.kind === "abort") throw failed("the stream was aborted");
    this.#size += packet.data.length;
    if (this.#size > this.#most) throw tooLarge(this.#most);
    this.#zlib = packet.zlib;
    this.#parts.push(packet.data);
    return packet.kind === "more" ? { next: packet.handle } : this.#unpacked();
  }

  #unpacked(): Buffer {
    const all = Buffer.concat(this.#parts);
    if (!this.#zlib) return all;
    try {
      return inflateSync(all, { maxOutputLength: this.#most, finishFlush: constants.Z_SYNC_FLUSH });
    } catch (cause) {
      const large = cause instanceof RangeError;
      throw large
        ? tooLarge(this.#most)
        : new LaboroError("LABORO_SERVICE_FAILED", `not zlib: ${String(cause)}`, { cause });
    }
  }
}

const failed = (why: string): LaboroError => new LaboroError("LABORO_SERVICE_FAILED", why);
const tooLarge = (most: number): LaboroError =>
  new LaboroError("LABORO_BODY_TOO_LARGE", `a stream of more than ${most} bytes`);
