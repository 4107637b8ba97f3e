/**
 * LMQv100, the messages of the round-robin queue, frame by frame. Pure.
 *
 *   [address …] E V command id [argument …] E [address …]
 *
 * E is an empty frame, V `LMQv100`. The addresses in front are where it still has to go; those behind, reversed, are the way back. The
 * last empty frame ends the arguments, of which any may be empty.
 */
export const VERSION = Buffer.from("LMQv100");
export const EMPTY = Buffer.alloc(0);

export const COMMANDS = {
  PING: 0x01,
  PONG: 0x02,
  EXEC: 0x03,
  TRACKEXEC: 0x04,
  TRACKADDRESS: 0x05,
  RESPONSE: 0x06,
} as const;
export type Command = keyof typeof COMMANDS;

/** What EXEC and TRACKEXEC ask for, where it is one byte. */
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

const BYTES = Object.fromEntries(
  Object.entries(COMMANDS).map(([name, byte]) => [name, Buffer.from([byte])]),
) as Readonly<Record<Command, Buffer>>;
const NAMES = new Map(Object.entries(COMMANDS).map(([name, byte]) => [byte as number, name as Command]));

export interface Message {
  /** Where it still has to go, nearest first. */
  readonly to: readonly Buffer[];
  readonly command: Command;
  readonly id: Buffer;
  readonly args: readonly Buffer[];
  /** The way back, as it lies in the message: the nearest last. */
  readonly returnPath: readonly Buffer[];
}

/** The message in these frames, or what is wrong with them. */
export function readMessage(frames: readonly Buffer[]): Message | string {
  const first = frames.findIndex(({ length }) => length === 0);
  if (first < 0) return "no empty frame";
  let last = frames.length - 1;
  while (last > first && (frames[last] as Buffer).length > 0) last--;
  const [version, command, id] = frames.slice(first + 1, first + 4);
  if (version === undefined || !version.equals(VERSION)) return "the version is not LMQv100";
  const name = command?.length === 1 ? NAMES.get(command[0] as number) : undefined;
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

/** The same in bytes of its own: frames are parts of all that was received with them, and would keep it for as long as they are kept. */
export function copyOf(message: Message): Message {
  const frames = [message.id, ...message.args, ...message.returnPath];
  const bytes = Buffer.concat(frames);
  let end = 0;
  const [id = EMPTY, ...rest] = frames.map(({ length }) => {
    end += length;
    return bytes.subarray(end - length, end);
  });
  return { ...message, id, args: rest.slice(0, message.args.length), returnPath: rest.slice(message.args.length) };
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
  BYTES[command],
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

/** A number in ASCII, as slots and sizes are written. Some peers send the zero that ends a string in C. */
export function readNumber(frame: Buffer | undefined, most: number): number | undefined {
  const [, digits] = /^\s*(\d{1,15})[\s\0]*$/.exec(frame?.toString("latin1") ?? "") ?? [];
  return digits === undefined || Number(digits) > most ? undefined : Number(digits);
}

/** Bytes in readable form: printable text, else hexadecimal; long ones are cut. */
export function printable(bytes: Uint8Array, most = 64): string {
  const text = Buffer.from(bytes.subarray(0, most)).toString("latin1");
  const rest = bytes.length > most ? `… (${bytes.length} bytes)` : "";
  return /^[\x20-\x7e]*$/.test(text) ? `${text}${rest}` : `${Buffer.from(text, "latin1").toString("hex")}${rest}`;
}
