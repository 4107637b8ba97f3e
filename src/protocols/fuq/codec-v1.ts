/**
 * Messages of fuq, version 1, as bytes. A header of 12 bytes, little-endian:
 *   magic u16, type u16, padding u32, arg0 u32
 * and for JOB and UPDATE arg0 bytes of msgpack. There are no sequence numbers, no HELLO, no CANCEL and no RESET; the code of an ERROR is
 * its arg0.
 */
import { badMessage, LaboroError } from "../../base/errors.js";
import { checkMagic, payloadIn } from "./codec.js";
import type { Layout } from "./framer.js";
import { MAGIC, type Task, TYPES, type Unreadable, type Update } from "./messages.js";
import { decodeTask, decodeUpdate, encodeTask, encodeUpdate } from "./payloads.js";

const HEADER_SIZE_V1 = 12;

export type MessageV1 =
  /** From the client: its processors. From the server: any number, mostly the client's own. */
  | { readonly type: "OK"; readonly nproc: number }
  | { readonly type: "JOB"; readonly task: Task }
  | { readonly type: "UPDATE"; readonly update: Update }
  /** How many processors; 0 is all of them, 0xFFFFFFFF all of them at once. */
  | { readonly type: "STOP"; readonly count: number }
  | { readonly type: "ERROR"; readonly code: number };

type TypeV1 = MessageV1["type"];

export type UnreadableV1 = Omit<Unreadable, "seq">;

/** Numbered as in version 2. */
const NAMES: ReadonlyMap<number, TypeV1> = new Map(
  (["OK", "JOB", "UPDATE", "STOP", "ERROR"] as const).map((name) => [TYPES[name], name]),
);

const NOTHING = Buffer.alloc(0);

export function encodeMessageV1(message: MessageV1): Buffer {
  const payload = payloadOf(message);
  const bytes = Buffer.alloc(HEADER_SIZE_V1 + payload.length);
  bytes.writeUInt16LE(MAGIC, 0);
  bytes.writeUInt16LE(TYPES[message.type], 2);
  bytes.writeUInt32LE(argumentOf(message) ?? payload.length, 8);
  bytes.set(payload, HEADER_SIZE_V1);
  return bytes;
}

function payloadOf(message: MessageV1): Uint8Array {
  if (message.type === "JOB") return encodeTask(message.task);
  return message.type === "UPDATE" ? encodeUpdate(message.update) : NOTHING;
}

function argumentOf(message: MessageV1): number | undefined {
  if (message.type === "OK") return message.nproc;
  if (message.type === "STOP") return message.count;
  return message.type === "ERROR" ? message.code : undefined;
}

/** A whole message; `?` where only its header can be read. Throws LABORO_BAD_MESSAGE where there is none, and nothing else. */
export function decodeMessageV1(given: Uint8Array): MessageV1 | UnreadableV1 {
  const bytes = Buffer.from(given.buffer, given.byteOffset, given.byteLength);
  if (bytes.length < HEADER_SIZE_V1)
    throw badMessage(`a message of ${bytes.length} bytes, a header has ${HEADER_SIZE_V1}`);
  const type = typeIn(bytes);
  const arg0 = bytes.readUInt32LE(8);
  const rest = bytes.subarray(HEADER_SIZE_V1);
  try {
    return bodyOf(type, arg0, rest);
  } catch (cause) {
    if (!(cause instanceof LaboroError)) throw cause;
    return { type: "?", number: TYPES[type], why: `${type} cannot be read: ${cause.message}` };
  }
}

function bodyOf(type: TypeV1, arg0: number, rest: Buffer): MessageV1 {
  switch (type) {
    case "OK":
      return { type, nproc: arg0 };
    case "STOP":
      return { type, count: arg0 };
    case "ERROR":
      return { type, code: arg0 };
    case "JOB":
      return { type, task: decodeTask(payloadIn(rest, arg0)) };
    case "UPDATE":
      return { type, update: decodeUpdate(payloadIn(rest, arg0)) };
  }
}

function typeIn(header: Buffer): TypeV1 {
  checkMagic(header.readUInt16LE(0));
  const number = header.readUInt16LE(2);
  const type = NAMES.get(number);
  if (type === undefined) throw badMessage(`${number} is no type of message in version 1`);
  return type;
}

/** For a stream: how long a message is, as far as its header says. */
export const STREAM_LAYOUT_V1: Layout = {
  headerSize: HEADER_SIZE_V1,
  sizeOf: (header) => {
    const type = typeIn(header);
    return HEADER_SIZE_V1 + (type === "JOB" || type === "UPDATE" ? header.readUInt32LE(8) : 0);
  },
};
