/**
 * Frames of the link as bytes. A frame is a msgpack array of messages; a message is an array of its type number and its
 * fields. Pure functions. Bodies in decoded messages are views into the frame. Do not write to them, and copy a body
 * before you keep it.
 *
 * Free values (the input of OPERATION, the value of RESULT, CONFIG) are JSON values or bytes. Undefined properties are
 * omitted.
 */
import { type Options, Packr, Unpackr } from "msgpackr";
import { badInput, badMessage, LaboroError } from "../../base/errors.js";
import { unexpectedValue } from "../../model/input.js";
import { LARGE_SUBMISSION } from "../../model/job.js";
import { FROM_CLIENT, TO_CLIENT } from "./codec-client.js";
import {
  DEPTH_LIMIT,
  FRAME_LIMIT,
  MESSAGES_LIMIT,
  type MessageCodec,
  NAME_LIMIT,
  ROWS_LIMIT,
  type Row,
  scan,
  VALUES_LIMIT,
} from "./codec-fields.js";
import { FROM_WORKER } from "./codec-from-worker.js";
import { readRequests, requestSize, writeRequest } from "./codec-requests.js";
import { TO_WORKER } from "./codec-to-worker.js";
import {
  type FromClient,
  type FromWorker,
  LargeInput,
  type LinkMessage,
  type ToClient,
  type ToWorker,
} from "./messages.js";

/** By sender of a frame: the messages that it may contain. */
export interface SentBy {
  readonly worker: FromWorker;
  readonly client: FromClient;
  /** A worker or a client: the first message of its first frame, JOIN or HELLO, says which. */
  readonly caller: FromWorker | FromClient;
  readonly broker: ToWorker | ToClient;
  readonly brokerToWorker: ToWorker;
  readonly brokerToClient: ToClient;
}

export type Sender = keyof SentBy;

type AnyCodec = MessageCodec<LinkMessage>;
type Table = readonly (AnyCodec | undefined)[];

const OPTIONS: Options & { readonly skipValues: readonly unknown[] } = {
  useRecords: false,
  variableMapSize: true,
  encodeUndefinedAsNil: true,
  // The scan has refused integers that a number cannot hold.
  int64AsType: "number",
  skipValues: [undefined],
  useToJSON: false,
};
const packr = new Packr(OPTIONS);
const unpackr = new Unpackr(OPTIONS);

const CODECS = { ...FROM_WORKER, ...TO_WORKER, ...FROM_CLIENT, ...TO_CLIENT } as unknown as Readonly<
  Record<LinkMessage["type"], AnyCodec>
>;
const FRAME_LIMITS = { depth: DEPTH_LIMIT, values: VALUES_LIMIT };
const MESSAGE_LIMITS = { depth: DEPTH_LIMIT - 1, values: VALUES_LIMIT - 1 };

const TABLES: Readonly<Record<Exclude<Sender, "caller">, Table>> = {
  worker: byNumber(FROM_WORKER),
  client: byNumber(FROM_CLIENT),
  broker: byNumber({ ...TO_WORKER, ...TO_CLIENT }),
  brokerToWorker: byNumber(TO_WORKER),
  brokerToClient: byNumber(TO_CLIENT),
};

/** By sender: the frequent message, whose frames have their own codec. */
const REQUEST_NUMBERS: Readonly<Partial<Record<Sender, number>>> = {
  worker: FROM_WORKER.REPLY.number,
  client: FROM_CLIENT.REQUEST.number,
  brokerToWorker: TO_WORKER.CALL.number,
  brokerToClient: TO_CLIENT.RESPONSE.number,
};

/** Messages with values of an SDK caller, or with texts of any origin. All others contain only laboro's own. */
const WITH_GIVEN_VALUES: ReadonlySet<LinkMessage["type"]> = new Set([
  ...(["JOIN", "SERVICES", "REPLY"] as const),
  ...(["HELLO", "REQUEST", "OPERATION", "RESULT", "CONFIG"] as const),
]);
/** Messages with values that were checked at the submission. They are refused only if they make it too large. */
const WITH_SUBMITTED_VALUES: ReadonlySet<LinkMessage["type"]> = new Set(["RECIPE", "TASKS"]);
const UNCHECKED_BYTES = ROWS_LIMIT;

const mustCheck = ({ type }: LinkMessage, bytes: number): boolean =>
  WITH_GIVEN_VALUES.has(type) || (bytes > UNCHECKED_BYTES && WITH_SUBMITTED_VALUES.has(type));

/** Throws LABORO_BAD_INPUT for a caller's value that the other end would refuse, because that would end the link. */
export function encodeMessage(message: LinkMessage): Uint8Array {
  const codec = CODECS[message.type];
  try {
    const row = codec.write(message);
    const bytes = packr.pack(row);
    // The packer would keep the largest buffer that it ever needed.
    if (bytes.length > 1024 * 1024) packr.useBuffer(Buffer.allocUnsafeSlow(8192));
    checkSize(bytes.length);
    if (mustCheck(message, bytes.length)) {
      scan(bytes, MESSAGE_LIMITS);
      codec.read(row);
    }
    return bytes;
  } catch (cause) {
    throw cannotSend(message, cause);
  }
}

/** The message as the other end reads it, without its bytes. Throws LABORO_BAD_INPUT. */
export function readBack<Message extends LinkMessage & { readonly body: Uint8Array }>(message: Message): Message {
  const codec = CODECS[message.type];
  try {
    const read = codec.read(codec.write(message)) as Message;
    checkSize(read.body.length + NAME_LIMIT);
    return read;
  } catch (cause) {
    throw cannotSend(message, cause);
  }
}

function checkSize(bytes: number): void {
  if (bytes <= FRAME_LIMIT - 5) return;
  throw new LaboroError("LABORO_BODY_TOO_LARGE", `${bytes} bytes, a frame holds ${FRAME_LIMIT}`);
}

function cannotSend({ type }: LinkMessage, cause: unknown): LaboroError {
  const code = cause instanceof LaboroError && cause.code === "LABORO_BODY_TOO_LARGE" ? cause.code : "LABORO_BAD_INPUT";
  const text = cause instanceof Error ? cause.message : String(cause);
  return new LaboroError(code, `${type} cannot be sent: ${text}`, { cause });
}

/** Room for the head of the longest frame. */
const HEAD_BYTES = 3;
const SMALLEST_BUFFER = 256;
const LARGEST_GUESS = 64 * 1024;

/** Messages that become one frame. */
export class FrameBuilder {
  #buffer: Buffer | undefined;
  #end = HEAD_BYTES;
  #count = 0;
  /** The size of the last frame: the next one may be as large. */
  #guess = SMALLEST_BUFFER;

  /** Bytes of the messages. */
  get bytes(): number {
    return this.#end - HEAD_BYTES;
  }

  get count(): number {
    return this.#count;
  }

  /** Adds the message after `makeRoom` with its size. Throws the errors of encodeMessage; then nothing is added. */
  add(message: LinkMessage, makeRoom?: (bytes: number) => void): void {
    const size = requestSize(message);
    const encoded = size === 0 ? encodeMessage(message) : undefined;
    const most = encoded?.length ?? size;
    makeRoom?.(most);
    const buffer = this.#withRoom(most);
    if (encoded === undefined) {
      this.#end = writeRequest(message, buffer, this.#end);
    } else {
      buffer.set(encoded, this.#end);
      this.#end += encoded.length;
    }
    this.#count++;
  }

  #withRoom(bytes: number): Buffer {
    const needed = this.#end + bytes;
    const buffer = this.#buffer;
    if (buffer !== undefined && needed <= buffer.length) return buffer;
    const larger = Buffer.allocUnsafe(Math.max(needed, buffer === undefined ? this.#guess : 2 * buffer.length));
    if (buffer !== undefined) larger.set(buffer.subarray(0, this.#end));
    this.#buffer = larger;
    return larger;
  }

  /** The frame. The builder is empty after it. */
  take(): Uint8Array {
    const count = this.#count;
    if (count > MESSAGES_LIMIT) throw badInput(`${count} messages, a frame holds ${MESSAGES_LIMIT}`);
    const buffer = this.#withRoom(0);
    const end = this.#end;
    const start = count < 16 ? HEAD_BYTES - 1 : 0;
    if (count < 16) buffer[start] = 0x90 | count;
    else buffer.set([0xdc, count >> 8, count & 0xff]);
    this.#guess = Math.min(Math.max(end, SMALLEST_BUFFER), LARGEST_GUESS);
    this.clear();
    return buffer.subarray(start, end);
  }

  clear(): void {
    this.#buffer = undefined;
    this.#end = HEAD_BYTES;
    this.#count = 0;
  }
}

export function encodeFrame(messages: readonly LinkMessage[]): Uint8Array {
  const frame = new FrameBuilder();
  for (const message of messages) frame.add(message);
  return frame.take();
}

/** Throws LABORO_BAD_MESSAGE for bytes that are no frame of this sender, and nothing else. */
export function decodeFrame<From extends Sender>(bytes: Uint8Array, from: From, limit = FRAME_LIMIT): SentBy[From][] {
  if (bytes.length > limit) throw badMessage(`a frame of ${bytes.length} bytes, expected at most ${limit}`);
  const requests = REQUEST_NUMBERS[from];
  const found = requests === undefined ? undefined : readRequests(bytes, requests);
  if (found !== undefined) return found as SentBy[From][];
  try {
    scan(bytes, FRAME_LIMITS);
    const large = from === "client" ? largeSubmission(bytes) : undefined;
    if (large !== undefined) return [large] as SentBy[From][];
    const rows = unpack(bytes);
    const table = from === "caller" ? tableOfCaller(rows) : TABLES[from as Exclude<Sender, "caller">];
    const messages: LinkMessage[] = [];
    for (const row of rows) messages.push(read(row, table, from));
    return messages as SentBy[From][];
  } catch (cause) {
    // The readers refuse a caller's input; here the peer is at fault.
    if (cause instanceof LaboroError && cause.code === "LABORO_BAD_INPUT") throw badMessage(cause.message, cause);
    throw cause;
  }
}

/** An OPERATION `submit` that is alone in its frame, as a large one is. Its input stays in its bytes. */
function largeSubmission(bytes: Uint8Array): FromClient | undefined {
  const [frame, row, type] = bytes;
  if (bytes.length <= LARGE_SUBMISSION || frame !== 0x91 || row !== 0x95 || type !== FROM_CLIENT.OPERATION.number)
    return undefined;
  const name = Buffer.from(bytes.buffer, bytes.byteOffset, 32).indexOf("\xa6submit", 3, "latin1");
  if (name < 0) return undefined;
  const head: Row = [type, ...((unpackr.unpackMultiple(bytes.subarray(3, name)) as unknown[] | undefined) ?? [])];
  const input = new LargeInput(bytes.subarray(name + 7));
  return head.length === 3 ? FROM_CLIENT.OPERATION.read([...head, "submit", input]) : undefined;
}

function unpack(bytes: Uint8Array): Row {
  let frame: unknown;
  try {
    frame = unpackr.unpack(bytes);
  } catch (cause) {
    throw badMessage(cause instanceof Error ? cause.message : String(cause), cause);
  }
  if (!Array.isArray(frame)) throw unexpectedValue("the frame", "a list of messages", frame);
  if (frame.length > MESSAGES_LIMIT) {
    throw unexpectedValue("the frame", `at most ${MESSAGES_LIMIT} messages`, frame.length);
  }
  return frame;
}

function read(row: unknown, table: Table, from: Sender): LinkMessage {
  if (!Array.isArray(row)) throw unexpectedValue("a message", "a list", row);
  const number: unknown = row[0];
  const codec = typeof number === "number" ? table[number] : undefined;
  if (codec === undefined) throw unexpectedValue("a message's type", `one that a ${from} sends`, number);
  return codec.read(row);
}

function tableOfCaller(rows: Row): Table {
  const first = Array.isArray(rows[0]) ? rows[0][0] : undefined;
  if (first === FROM_WORKER.JOIN.number) return TABLES.worker;
  if (first === FROM_CLIENT.HELLO.number) return TABLES.client;
  throw unexpectedValue("the first message's type", "JOIN or HELLO", first);
}

function byNumber(codecs: Readonly<Record<string, unknown>>): Table {
  const table: (AnyCodec | undefined)[] = [];
  for (const codec of Object.values(codecs) as AnyCodec[]) table[codec.number] = codec;
  // Holes would send a lookup to the prototype.
  return Array.from(table);
}
