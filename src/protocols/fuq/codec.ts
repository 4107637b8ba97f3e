/**
 * Messages of fuq as bytes. Pure functions. A little-endian header comes first:
 *   version 2   magic u16, type u8, subtype u8, seq u32, padding u32, arg0 u32
 *   version 1   magic u16, type u16, padding u32, arg0 u32
 * HELLO, JOB, UPDATE and CANCEL have arg0 bytes of msgpack after it. The code of an ERROR is the subtype in version 2
 * and arg0 in version 1. Padding, other subtypes and trailing bytes are ignored.
 *
 * Payloads are Go structs: maps with the names of the fields as keys, in the order of the fields. Unknown keys are
 * ignored, missing ones are zero. A Task is written with its JobDescription nested. One version of the original writes
 * it flat, so both are read.
 */
import { asLaboroError, badMessage, LaboroError } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";
import {
  type Body,
  COUNT_LIMIT,
  type Hello,
  type Message,
  type MessageV1,
  type Task,
  type TaskPair,
  TYPES,
  type TypeName,
  type Unreadable,
  type UnreadableV1,
  type Update,
} from "./messages.js";
import { type Field, MsgpackReader, packMsgpack, type Struct, type Value, wireName } from "./msgpack.js";

const MAGIC = 0xc047;
export const HEADER_SIZE = 16;
const HEADER_SIZE_V1 = 12;
export const MESSAGE_LIMIT = 64 * 1024 * 1024;

const NAMES = new Map(Object.entries(TYPES).map(([name, number]) => [number as number, name as TypeName]));

type TypeV1 = MessageV1["type"];
const TYPES_V1: readonly TypeV1[] = ["OK", "JOB", "UPDATE", "STOP", "ERROR"];

const HAVE_PAYLOAD: readonly TypeName[] = ["HELLO", "JOB", "UPDATE", "CANCEL"];

/** Free slots and running tasks in one number. Counts above the limit are written as the limit. */
export const joinCounts = (nproc: number, nrun: number): number =>
  ((Math.min(nproc, COUNT_LIMIT) << 16) | Math.min(nrun, COUNT_LIMIT)) >>> 0;
export const splitCounts = (arg0: number): { nproc: number; nrun: number } => ({
  nproc: arg0 >>> 16,
  nrun: arg0 & 0xffff,
});

export function encodeMessage(message: Message): Buffer {
  const bytes = withArgument(HEADER_SIZE, contentOf(message));
  bytes.writeUInt8(TYPES[message.type], 2);
  bytes.writeUInt8(message.type === "ERROR" ? message.code & 0xff : 0, 3);
  bytes.writeUInt32LE(message.seq, 4);
  return bytes;
}

export function encodeMessageV1(message: MessageV1): Buffer {
  const bytes = withArgument(HEADER_SIZE_V1, contentOfV1(message));
  bytes.writeUInt16LE(TYPES[message.type], 2);
  return bytes;
}

/** `content` is arg0, or a payload whose length is arg0, the last field of the header. */
function withArgument(headerSize: number, content: number | Buffer): Buffer {
  const [arg0, payload] = typeof content === "number" ? [content, Buffer.alloc(0)] : [content.length, content];
  const bytes = Buffer.alloc(headerSize + payload.length);
  bytes.writeUInt16LE(MAGIC, 0);
  bytes.writeUInt32LE(arg0, headerSize - 4);
  bytes.set(payload, headerSize);
  return bytes;
}

function contentOf(message: Body): number | Buffer {
  switch (message.type) {
    case "OK":
      return joinCounts(message.nproc, message.nrun);
    case "HELLO":
      return message.hello === undefined ? 0 : encodeHello(message.hello);
    case "JOB":
      return packMsgpack(message.tasks.map(nestedTask));
    case "UPDATE":
      return packMsgpack(updateFields(message.update));
    case "CANCEL":
      return encodePairs(message.pairs, message.single);
    case "STOP":
      return message.count;
    case "RESET":
      return message.lastReply;
    case "ERROR":
    case "LIST":
      return message.arg0;
  }
}

function contentOfV1(message: MessageV1): number | Buffer {
  if (message.type === "OK") return message.nproc;
  if (message.type === "JOB") return packMsgpack(nestedTask(message.task));
  return message.type === "ERROR" ? message.code : contentOf(message);
}

/**
 * Decodes a complete message. A message with a valid header and invalid content is `?`, so that it can be answered by
 * its number. Throws LABORO_BAD_MESSAGE if the header is invalid.
 */
export function decodeMessage(given: Uint8Array): Message | Unreadable {
  const bytes = headed(given, HEADER_SIZE);
  const number = bytes.readUInt8(2);
  const seq = bytes.readUInt32LE(4);
  const type = NAMES.get(number);
  if (type === undefined) return { type: "?", seq, number, why: `${number} is not a message type` };
  return { ...readContent(type, () => bodyOf(type, bytes)), seq };
}

/** Like `decodeMessage`. An unknown type is refused, because version 1 has no numbers to answer by. */
export function decodeMessageV1(given: Uint8Array): MessageV1 | UnreadableV1 {
  const bytes = headed(given, HEADER_SIZE_V1);
  const type = typeV1(bytes);
  return readContent(type, () => bodyOfV1(type, bytes));
}

function readContent<T>(type: TypeName, read: () => T): T | UnreadableV1 {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof LaboroError)) throw cause;
    return { type: "?", number: TYPES[type], why: `${type} cannot be read: ${cause.message}` };
  }
}

function bodyOf(type: TypeName, bytes: Buffer): Body {
  const arg0 = bytes.readUInt32LE(HEADER_SIZE - 4);
  switch (type) {
    case "OK":
      return { type, ...splitCounts(arg0) };
    case "HELLO":
      return arg0 === 0 ? { type } : { type, hello: readHello(payloadOf(bytes, HEADER_SIZE)) };
    case "JOB":
      return { type, tasks: arg0 === 0 ? [] : readTasks(payloadOf(bytes, HEADER_SIZE)) };
    case "UPDATE":
      return { type, update: readUpdate(payloadOf(bytes, HEADER_SIZE)) };
    case "CANCEL":
      return { type, pairs: arg0 === 0 ? [] : readPairs(payloadOf(bytes, HEADER_SIZE)) };
    case "LIST":
      return { type, arg0 };
    case "STOP":
      return { type, count: arg0 };
    case "ERROR":
      return { type, code: bytes.readUInt8(3), arg0 };
    case "RESET":
      return { type, lastReply: arg0 };
  }
}

function bodyOfV1(type: TypeV1, bytes: Buffer): MessageV1 {
  const arg0 = bytes.readUInt32LE(HEADER_SIZE_V1 - 4);
  switch (type) {
    case "OK":
      return { type, nproc: arg0 };
    case "JOB":
      return { type, task: readTask(payloadOf(bytes, HEADER_SIZE_V1)) };
    case "UPDATE":
      return { type, update: readUpdate(payloadOf(bytes, HEADER_SIZE_V1)) };
    case "STOP":
      return { type, count: arg0 };
    case "ERROR":
      return { type, code: arg0 };
  }
}

function headed(given: Uint8Array, headerSize: number): Buffer {
  const bytes = Buffer.from(given.buffer, given.byteOffset, given.byteLength);
  if (bytes.length < headerSize) throw badMessage(`a message of ${bytes.length} bytes, a header has ${headerSize}`);
  const magic = bytes.readUInt16LE(0);
  if (magic !== MAGIC) throw badMessage(`it begins with 0x${magic.toString(16)}, expected 0x${MAGIC.toString(16)}`);
  return bytes;
}

function payloadOf(bytes: Buffer, headerSize: number): MsgpackReader {
  const length = bytes.readUInt32LE(headerSize - 4);
  const rest = bytes.subarray(headerSize);
  if (length > rest.length) throw badMessage(`arg0 claims ${length} bytes, ${rest.length} came`);
  return new MsgpackReader(rest.subarray(0, length));
}

function typeV1(bytes: Buffer): TypeV1 {
  const number = bytes.readUInt16LE(2);
  const type = TYPES_V1.find((name) => TYPES[name] === number);
  if (type === undefined) throw badMessage(`${number} is not a message type of version 1`);
  return type;
}

/** On a stream an unknown type is an error, because the start of the next message is not known. */
export const STREAM_LAYOUT: Layout = {
  headerSize: HEADER_SIZE,
  sizeOf: (bytes) => {
    const number = headed(bytes, HEADER_SIZE).readUInt8(2);
    const type = NAMES.get(number);
    if (type === undefined || type === "LIST") throw badMessage(`${number} is not a message type in use`);
    return HEADER_SIZE + (HAVE_PAYLOAD.includes(type) ? bytes.readUInt32LE(HEADER_SIZE - 4) : 0);
  },
};

export const STREAM_LAYOUT_V1: Layout = {
  headerSize: HEADER_SIZE_V1,
  sizeOf: (bytes) => {
    const type = typeV1(headed(bytes, HEADER_SIZE_V1));
    return HEADER_SIZE_V1 + (HAVE_PAYLOAD.includes(type) ? bytes.readUInt32LE(HEADER_SIZE_V1 - 4) : 0);
  },
};

// Payloads

const INTEGER: Field<number> = { zero: 0, read: (from, key) => from.integer(key) };
const TEXT: Field<Bytes> = { zero: "", read: (from, key) => from.text(key) };
const FLAG: Field<boolean> = { zero: false, read: (from, key) => from.flag(key) };
const structField = <S extends Struct>(struct: S) => ({
  zero: null,
  read: (from: MsgpackReader, key: string) => (from.nil() ? null : from.struct(key, struct)),
});

export const PAIR = { jobId: INTEGER, task: INTEGER };
export const DESCRIPTION = {
  jobId: INTEGER,
  name: TEXT,
  numTasks: INTEGER,
  workingDir: TEXT,
  loggingDir: TEXT,
  command: TEXT,
  status: INTEGER,
};
const TASK = { ...DESCRIPTION, task: INTEGER, jobDescription: structField(DESCRIPTION) };
const NEW_JOB = { numProc: INTEGER };
const UPDATE = { ...PAIR, success: FLAG, status: TEXT, newJob: structField(NEW_JOB) };
const HELLO = {
  numProcs: INTEGER,
  running: { zero: null, read: (from: MsgpackReader, key: string) => from.list(key, COUNT_LIMIT, readTask) ?? null },
};

/** The values of a struct, with their names and in their order on the wire. */
export const wireFields = <S extends Struct>(struct: S, values: { readonly [K in keyof S]: Value }) =>
  Object.fromEntries(Object.keys(struct).map((name) => [wireName(name), values[name] as Value]));

const nestedTask = ({ task, job }: Task) => ({ Task: task, JobDescription: wireFields(DESCRIPTION, job) });

export const updateFields = ({ newJob, ...update }: Update) =>
  wireFields(UPDATE, { ...update, newJob: newJob && wireFields(NEW_JOB, newJob) });

function encodeHello({ numProcs, running }: Hello): Buffer {
  const tasks = running?.map(nestedTask) ?? null;
  return packMsgpack(numProcs === undefined ? (tasks ?? []) : wireFields(HELLO, { numProcs, running: tasks }));
}

function encodePairs(pairs: readonly TaskPair[], single = false): Buffer {
  const [first] = pairs;
  const written = pairs.map((pair) => wireFields(PAIR, pair));
  return packMsgpack(single && first !== undefined ? wireFields(PAIR, first) : written);
}

// These throw LABORO_BAD_MESSAGE and nothing else.

function readHello(from: MsgpackReader): Hello {
  if (from.atList()) return { numProcs: undefined, running: readTasks(from) };
  const hello = from.struct("HELLO", HELLO);
  const { numProcs } = hello;
  if (numProcs < 0 || numProcs > COUNT_LIMIT) throw badMessage(`NumProcs is ${numProcs}, expected 0 to ${COUNT_LIMIT}`);
  return hello;
}

const readTasks = (from: MsgpackReader): readonly Task[] => from.list("JOB", COUNT_LIMIT, readTask) ?? [];

function readTask(from: MsgpackReader): Task {
  const { task, jobDescription, ...flat } = from.struct("Task", TASK);
  return { task, job: jobDescription ?? flat };
}

function readUpdate(from: MsgpackReader): Update {
  if (from.nil()) throw badMessage("UPDATE is nil");
  const update = from.struct("UPDATE", UPDATE);
  return { ...update, status: Buffer.from(update.status).toString() };
}

/** A list, as in the original, or one bare pair, as in the specification. */
function readPairs(from: MsgpackReader): readonly TaskPair[] {
  if (from.nil()) return [];
  return from.atList() ? (from.list("CANCEL", COUNT_LIMIT, readPair) ?? []) : [readPair(from)];
}

const readPair = (from: MsgpackReader): TaskPair => from.struct("TaskPair", PAIR);

/** How a Framer splits a stream into messages. */
export interface Layout {
  readonly headerSize: number;
  /** The size of the message with this header. Throws LABORO_BAD_MESSAGE. */
  readonly sizeOf: (header: Buffer) => number;
}

const NOTHING = Buffer.alloc(0);

export class Framer {
  readonly #layout: Layout;
  readonly #limit: number;
  /** The beginning of a message. The buffer grows with the received bytes, not with the length in a header. */
  #partial = NOTHING;
  #length = 0;
  #failure: LaboroError | undefined;

  constructor(layout: Layout, limit: number) {
    this.#layout = layout;
    this.#limit = limit;
  }

  get pending(): number {
    return this.#length;
  }

  /** The messages are views into the chunks. After a failure the stream cannot be decoded any further. */
  push(chunk: Buffer): { readonly messages: readonly Buffer[]; readonly failure?: LaboroError } {
    if (this.#failure !== undefined) return { messages: [], failure: this.#failure };
    const messages: Buffer[] = [];
    let rest = this.#length === 0 ? chunk : this.#append(chunk);
    try {
      for (let size = this.#sizeOf(rest); size <= rest.length; size = this.#sizeOf(rest)) {
        messages.push(rest.subarray(0, size));
        rest = rest.subarray(size);
      }
    } catch (cause) {
      this.#failure = asLaboroError(cause);
      this.#partial = NOTHING;
      return { messages, failure: this.#failure };
    }
    if (rest.length !== this.#length) {
      // A new buffer, because the messages are views into the old one.
      this.#partial = NOTHING;
      this.#length = 0;
      this.#append(rest);
    }
    return { messages };
  }

  /** The size of the message, or of its header while that is incomplete. */
  #sizeOf(bytes: Buffer): number {
    if (bytes.length < this.#layout.headerSize) return this.#layout.headerSize;
    const size = this.#layout.sizeOf(bytes);
    if (size > this.#limit) throw badMessage(`a message claims ${size} bytes, the limit is ${this.#limit}`);
    return size;
  }

  #append(bytes: Buffer): Buffer {
    const needed = this.#length + bytes.length;
    if (needed > this.#partial.length) {
      const wider = Buffer.allocUnsafeSlow(Math.max(needed, this.#partial.length * 2));
      this.#partial.copy(wider, 0, 0, this.#length);
      this.#partial = wider;
    }
    bytes.copy(this.#partial, this.#length);
    this.#length = needed;
    return this.#partial.subarray(0, needed);
  }
}
