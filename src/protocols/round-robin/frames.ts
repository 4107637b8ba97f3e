/**
 * LMQv100, the messages of the round-robin queue, frame by frame. Pure.
 *
 *   [address …] E V command id [argument …] E [address …]
 *
 * E is an empty frame, V is `LMQv100`. The first addresses are the remaining path. The last addresses, reversed, are
 * the return path. The last empty frame ends the arguments; an argument may also be empty.
 */
import type { DecodedMessage, Decoder } from "../decoders.js";

const VERSION = Buffer.from("LMQv100");
export const EMPTY = Buffer.alloc(0);

const COMMANDS = {
  PING: Buffer.from([0x01]),
  PONG: Buffer.from([0x02]),
  EXEC: Buffer.from([0x03]),
  TRACKEXEC: Buffer.from([0x04]),
  TRACKADDRESS: Buffer.from([0x05]),
  RESPONSE: Buffer.from([0x06]),
} as const;
type Command = keyof typeof COMMANDS;
const NAMES = new Map(Object.entries(COMMANDS).map(([name, [byte]]) => [byte, name as Command]));

/** What EXEC and TRACKEXEC ask for: one byte, or a name. */
export const PING_ARGUMENT = Buffer.from([0x01]);
export const INCREMENT = Buffer.from([0x07]);
export const REGISTER = Buffer.from([0x08]);
export const DEREGISTER = Buffer.from([0x09]);
export const STREAM = Buffer.from([0x0a]);
export const MQS_MORE = Buffer.from("mqs_more");
export const ONGOING = Buffer.from("ongoing");

/** Status frames: two zigzag varints, the state and an error code. */
export const SUCCESS = Buffer.from([0x14, 0x00]);
export const FAILURE = Buffer.from([0x28, 0x00]);

export interface Message {
  /** The remaining path, nearest first. */
  readonly to: readonly Buffer[];
  readonly command: Command;
  readonly id: Buffer;
  readonly args: readonly Buffer[];
  /** The return path, nearest last. */
  readonly returnPath: readonly Buffer[];
}

/** The message in these frames, or what is wrong with them. */
export function readMessage(frames: readonly Buffer[]): Message | string {
  const first = frames.findIndex(({ length }) => length === 0);
  if (first < 0) return "no empty frame";
  const last = frames.findLastIndex(({ length }) => length === 0);
  const [version, command, id] = frames.slice(first + 1, first + 4);
  if (!isArgument(version, VERSION)) return "the version is not LMQv100";
  const name = command?.length === 1 ? NAMES.get(command[0]) : undefined;
  if (name === undefined) return `no command ${printable(command ?? EMPTY)}`;
  if (id === undefined || last < first + 4) return `${name} without an id or its last empty frame`;
  return {
    to: frames.slice(0, first),
    command: name,
    id,
    args: frames.slice(first + 4, last),
    returnPath: frames.slice(last + 1),
  };
}

/** A copy, because frames are views into a larger chunk. */
export function copyOf(message: Message): Message {
  const { id, args, returnPath } = message;
  const copies = (frames: readonly Buffer[]): Buffer[] => frames.map((frame) => Buffer.from(frame));
  return { ...message, id: Buffer.from(id), args: copies(args), returnPath: copies(returnPath) };
}

export interface MessageInit {
  readonly to?: readonly Uint8Array[];
  readonly command: Command;
  readonly id: Uint8Array;
  readonly args?: readonly Uint8Array[];
  readonly returnPath?: readonly Uint8Array[];
}

const NONE: readonly Uint8Array[] = [];

export const makeMessage = ({ to = NONE, command, id, args = NONE, returnPath = NONE }: MessageInit): Uint8Array[] => [
  ...to,
  EMPTY,
  VERSION,
  COMMANDS[command],
  id,
  ...args,
  EMPTY,
  ...returnPath,
];

export const id4 = (number: number): Buffer => {
  const id = Buffer.alloc(4);
  id.writeUInt32LE(number >>> 0);
  return id;
};

export const id8 = (number: number): Buffer => {
  const id = Buffer.alloc(8);
  id.writeBigUInt64LE(BigInt(number));
  return id;
};

export const isArgument = (frame: Buffer | undefined, wanted: Buffer): boolean => frame?.equals(wanted) === true;

/** The only argument is the status failure. */
export const isFailure = ({ length, 0: status }: readonly Buffer[]): boolean =>
  length === 1 && isArgument(status, FAILURE);

/** A number in ASCII, as slots and sizes are written. Some peers also send the zero byte that ends a string in C. */
export function readNumber(frame: Buffer | undefined, most: number): number | undefined {
  const [, digits] = /^\s*(\d{1,15})[\s\0]*$/.exec(frame?.toString("latin1") ?? "") ?? [];
  return digits === undefined || Number(digits) > most ? undefined : Number(digits);
}

/** Bytes in readable form: printable text, else hexadecimal. Long ones are shortened. */
export function printable(bytes: Uint8Array, most = 64): string {
  const shown = Buffer.from(bytes.subarray(0, most));
  const text = shown.toString("latin1");
  const rest = bytes.length > most ? `… (${bytes.length} bytes)` : "";
  return `${/^[\x20-\x7e]*$/.test(text) ? text : shown.toString("hex")}${rest}`;
}

const HANDLE_BYTES = 8;
/** Bytes of a packet before its data. */
export const PACKET_HEAD = 3 + HANDLE_BYTES;
const KINDS = ["more", "abort", "finished"] as const;

/**
 * A packet of a stream. Byte 0 is `0` more, `1` abort or `2` finished. Byte 1 is `R` raw or `Z` zlib. Byte 2 is the
 * length of the handle, 08. The handle follows, with which the next packet is requested (mqs_more), and then the data.
 */
interface Packet {
  readonly kind: (typeof KINDS)[number];
  readonly zlib: boolean;
  readonly handle: Buffer;
  readonly data: Buffer;
}

export function readPacket(frame: Buffer): Packet | undefined {
  const [head, data] = [frame.toString("latin1", 0, 3), frame.subarray(PACKET_HEAD)];
  const kind = KINDS[Number(head[0])];
  if (kind === undefined || !/^[012][RZ]/.test(head) || frame[2] !== HANDLE_BYTES || frame.length < PACKET_HEAD)
    return undefined;
  return { kind, zlib: head[1] === "Z", handle: frame.subarray(3, PACKET_HEAD), data };
}

export const makePacket = ({ kind, zlib, handle, data }: Packet): Buffer =>
  Buffer.concat([Buffer.from(`${KINDS.indexOf(kind)}${zlib ? "Z" : "R"}\x08`), handle, data]);

/** Joins frames to one body: several frames become lines. */
export function bodyOf(frames: readonly Buffer[]): Buffer {
  if (frames.length < 2) return frames[0] ?? EMPTY;
  return Buffer.concat(frames.flatMap((frame, at) => (at === 0 ? [frame] : [Buffer.from("\n"), frame])));
}

const ABORTED = makePacket({ kind: "abort", zlib: false, handle: Buffer.alloc(HANDLE_BYTES), data: EMPTY });

/**
 * The argument of the RESPONSE to a command that was refused or lost. A client that requested a stream takes any answer
 * for a packet, and the original reads past the end of a status. So it gets a packet that aborts the stream.
 */
export const failureReply = (command: Buffer | undefined): Buffer =>
  isArgument(command, STREAM) || isArgument(command, MQS_MORE) ? ABORTED : FAILURE;

export const isFailureReply = (frame: Uint8Array | undefined): boolean => frame === FAILURE || frame === ABORTED;

/** The arguments of the RESPONSE for the reply of a worker of another protocol. */
export function replyArguments(command: Buffer, body: Uint8Array, failed: boolean): readonly Uint8Array[] {
  if (failed) return [failureReply(command)];
  if (!command.equals(STREAM)) return body.length === 0 ? [] : [body];
  return [makePacket({ kind: "finished", zlib: false, handle: Buffer.alloc(HANDLE_BYTES), data: Buffer.from(body) })];
}

// Readable form, for `laboro decode round-robin`, for the connections on the dashboard, and for the consoles

const ARGUMENT_NAMES: readonly (readonly [Buffer, string])[] = [
  [PING_ARGUMENT, "PING"],
  [INCREMENT, "INCREMENT"],
  [REGISTER, "REGISTER"],
  [DEREGISTER, "DEREGISTER"],
  [STREAM, "STREAM"],
];

const isCommandFor = (command: Command): boolean => command === "EXEC" || command === "TRACKEXEC";

/** TRACKEXEC REGISTER, RESPONSE, … */
export function messageName({ command, args: [what] }: Message): string {
  if (!isCommandFor(command) || what === undefined) return command;
  return `${command} ${ARGUMENT_NAMES.find(([bytes]) => isArgument(what, bytes))?.[1] ?? printable(what)}`;
}

export function describeMessage(frames: readonly Uint8Array[]): DecodedMessage & { readonly bytes: number } {
  const buffers = frames.map((frame) => Buffer.from(frame.buffer, frame.byteOffset, frame.length));
  const bytes = buffers.reduce((sum, { length }) => sum + length, 0);
  const message = readMessage(buffers);
  if (typeof message === "string") {
    const shown = buffers.slice(0, 100).map((frame) => printable(frame));
    return { name: "?", fields: { frames: shown }, bytes, note: message };
  }
  const { to, command, id, args, returnPath } = message;
  const rest = isCommandFor(command) ? args.slice(1) : args;
  const fields = {
    ...(to.length === 0 ? {} : { to: to.map((address) => printable(address)) }),
    id: id.toString("hex").slice(0, 64),
    ...(rest.length === 0 ? {} : { args: rest.slice(0, 100).map((arg) => describeArgument(command, arg)) }),
    ...(returnPath.length === 0 ? {} : { returnPath: returnPath.map((address) => printable(address)) }),
  };
  return { name: messageName(message), fields, bytes };
}

function describeArgument(command: Command, argument: Buffer): unknown {
  if (command !== "RESPONSE") return printable(argument);
  if (argument.equals(SUCCESS)) return { status: "success" };
  if (argument.equals(FAILURE)) return { status: "failure" };
  const packet = readPacket(argument);
  if (packet === undefined) return printable(argument);
  const { kind, zlib, handle, data } = packet;
  return { packet: kind, packing: zlib ? "zlib" : "raw", handle: handle.toString("hex"), bytes: data.length };
}

/** With or without ZeroMQ's routing frame in front. */
export const decoder = (): Decoder => ({
  push: (_direction, frames) => {
    const { bytes: _, ...message } = describeMessage(frames);
    return [message];
  },
  end: () => [],
});
