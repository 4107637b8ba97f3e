/**
 * Messages of fuq, version 2, as bytes. Pure functions. A header of 16 bytes, little-endian:
 *   magic u16, type u8, subtype u8, seq u32, padding u32, arg0 u32
 * and for HELLO, JOB, UPDATE and CANCEL arg0 bytes of msgpack. Padding, the subtype of what is no ERROR, and trailing bytes are ignored.
 */
import { badMessage, LaboroError } from "../../base/errors.js";
import type { Layout } from "./framer.js";
import {
  type Body,
  COUNT_LIMIT,
  MAGIC,
  type Message,
  type Numbered,
  TYPES,
  type TypeName,
  type Unreadable,
} from "./messages.js";
import {
  decodeHello,
  decodePairs,
  decodeTasks,
  decodeUpdate,
  encodeHello,
  encodePairs,
  encodeTasks,
  encodeUpdate,
} from "./payloads.js";

export const HEADER_SIZE = 16;
export const MESSAGE_LIMIT = 64 * 1024 * 1024;

const NOTHING = Buffer.alloc(0);

const NAMES: ReadonlyMap<number, TypeName> = new Map(
  Object.entries(TYPES).map(([name, number]) => [number, name as TypeName]),
);

export function encodeMessage(message: Message): Buffer {
  const payload = payloadOf(message);
  const bytes = Buffer.alloc(HEADER_SIZE + payload.length);
  bytes.writeUInt16LE(MAGIC, 0);
  bytes.writeUInt8(TYPES[message.type], 2);
  bytes.writeUInt8(message.type === "ERROR" ? message.code & 0xff : 0, 3);
  bytes.writeUInt32LE(message.seq, 4);
  bytes.writeUInt32LE(argumentOf(message, payload), 12);
  bytes.set(payload, HEADER_SIZE);
  return bytes;
}

function payloadOf(message: Body): Uint8Array {
  switch (message.type) {
    case "HELLO":
      return message.hello === undefined ? NOTHING : encodeHello(message.hello);
    case "JOB":
      return encodeTasks(message.tasks);
    case "UPDATE":
      return encodeUpdate(message.update);
    case "CANCEL":
      return encodePairs(message.pairs, message.single);
    default:
      return NOTHING;
  }
}

function argumentOf(message: Body, payload: Uint8Array): number {
  switch (message.type) {
    case "OK":
      return joinCounts(message.nproc, message.nrun);
    case "STOP":
      return message.count;
    case "ERROR":
    case "LIST":
      return message.arg0;
    case "RESET":
      return message.lastReply;
    default:
      return payload.length;
  }
}

/** Free slots and running tasks in one number, as OK and ERROR(no_procs) have them. More than fit are named as many as fit. */
export const joinCounts = (nproc: number, nrun: number): number =>
  ((Math.min(nproc, COUNT_LIMIT) << 16) | Math.min(nrun, COUNT_LIMIT)) >>> 0;
export const splitCounts = (arg0: number): { nproc: number; nrun: number } => ({
  nproc: arg0 >>> 16,
  nrun: arg0 & 0xffff,
});

/**
 * A whole message. What has a header and cannot be read further is `?`, so that it can be answered by its number; throws
 * LABORO_BAD_MESSAGE for what has none, and nothing else.
 */
export function decodeMessage(given: Uint8Array): Message | Unreadable {
  const bytes = Buffer.from(given.buffer, given.byteOffset, given.byteLength);
  if (bytes.length < HEADER_SIZE) throw badMessage(`a message of ${bytes.length} bytes, a header has ${HEADER_SIZE}`);
  checkMagic(bytes.readUInt16LE(0));
  const number = bytes.readUInt8(2);
  const subtype = bytes.readUInt8(3);
  const seq = bytes.readUInt32LE(4);
  const arg0 = bytes.readUInt32LE(12);
  const type = NAMES.get(number);
  if (type === undefined) return { type: "?", seq, number, why: `${number} is no type of message` };
  try {
    return { ...bodyOf(type, subtype, arg0, bytes.subarray(HEADER_SIZE)), seq } as Numbered<Body>;
  } catch (cause) {
    if (!(cause instanceof LaboroError)) throw cause;
    return { type: "?", seq, number, why: `${type} cannot be read: ${cause.message}` };
  }
}

function bodyOf(type: TypeName, subtype: number, arg0: number, rest: Buffer): Body {
  switch (type) {
    case "OK":
      return { type, ...splitCounts(arg0) };
    case "HELLO":
      return arg0 === 0 ? { type } : { type, hello: decodeHello(payloadIn(rest, arg0)) };
    case "JOB":
      return { type, tasks: arg0 === 0 ? [] : decodeTasks(payloadIn(rest, arg0)) };
    case "UPDATE":
      return { type, update: decodeUpdate(payloadIn(rest, arg0)) };
    case "CANCEL":
      return { type, pairs: arg0 === 0 ? [] : decodePairs(payloadIn(rest, arg0)) };
    case "LIST":
      return { type, arg0 };
    case "STOP":
      return { type, count: arg0 };
    case "ERROR":
      return { type, code: subtype, arg0 };
    case "RESET":
      return { type, lastReply: arg0 };
  }
}

export function payloadIn(rest: Buffer, length: number): Buffer {
  if (length > rest.length) throw badMessage(`arg0 claims ${length} bytes, ${rest.length} came`);
  return rest.subarray(0, length);
}

export function checkMagic(magic: number): void {
  if (magic !== MAGIC) throw badMessage(`it begins with 0x${magic.toString(16)}, expected 0x${MAGIC.toString(16)}`);
}

/** For a stream: how long a message is, as far as its header says. */
export const STREAM_LAYOUT: Layout = {
  headerSize: HEADER_SIZE,
  sizeOf: (header) => {
    checkMagic(header.readUInt16LE(0));
    const type = NAMES.get(header.readUInt8(2));
    // Without the type it is not known where the next message begins.
    if (type === undefined || type === "LIST")
      throw badMessage(`${header.readUInt8(2)} is no type of message that is in use`);
    const hasPayload = type === "HELLO" || type === "JOB" || type === "UPDATE" || type === "CANCEL";
    return HEADER_SIZE + (hasPayload ? header.readUInt32LE(12) : 0);
  },
};
