/** A message in readable form: for `laboro decode`, for the connections on the dashboard, and for the consoles. */
import type { DecodedMessage, Decoder } from "../decoders.js";
import {
  DEREGISTER,
  INCREMENT,
  isArgument,
  type Message,
  PING_ARGUMENT,
  printable,
  REGISTER,
  readMessage,
  STREAM,
} from "./frames.js";
import { readPacket } from "./stream.js";

const ARGUMENTS: readonly (readonly [Buffer, string])[] = [
  [PING_ARGUMENT, "PING"],
  [INCREMENT, "INCREMENT"],
  [REGISTER, "REGISTER"],
  [DEREGISTER, "DEREGISTER"],
  [STREAM, "STREAM"],
];

const argumentName = (argument: Buffer): string =>
  ARGUMENTS.find(([bytes]) => isArgument(argument, bytes))?.[1] ?? printable(argument);

export function describeMessage(frames: readonly Uint8Array[]): DecodedMessage & { readonly bytes: number } {
  const buffers = frames.map((frame) => Buffer.from(frame.buffer, frame.byteOffset, frame.length));
  const bytes = buffers.reduce((sum, { length }) => sum + length, 0);
  const message = readMessage(buffers);
  if (typeof message === "string") {
    return {
      name: "?",
      fields: { frames: buffers.slice(0, 100).map((frame) => printable(frame)) },
      bytes,
      note: message,
    };
  }
  return { name: messageName(message), fields: fieldsOf(message), bytes };
}

/** `laboro decode round-robin`: messages in their frames, with or without ZeroMQ's routing frame in front. */
export const decoder = (): Decoder => ({
  push: (_direction, frames) => {
    const { bytes: _, ...message } = describeMessage(frames);
    return [message];
  },
  end: () => [],
});

/** TRACKEXEC REGISTER, RESPONSE, … */
export function messageName({ command, args: [what] }: Message): string {
  const asks = command === "EXEC" || command === "TRACKEXEC";
  return asks && what !== undefined ? `${command} ${argumentName(what)}` : command;
}

function fieldsOf({ to, command, id, args, returnPath }: Message): Record<string, unknown> {
  const asks = command === "EXEC" || command === "TRACKEXEC";
  const rest = asks ? args.slice(1) : args;
  return {
    ...(to.length === 0 ? {} : { to: to.map((address) => printable(address)) }),
    id: id.toString("hex").slice(0, 64),
    ...(rest.length === 0 ? {} : { args: rest.slice(0, 100).map((arg) => argumentOf(command, arg)) }),
    ...(returnPath.length === 0 ? {} : { returnPath: returnPath.map((address) => printable(address)) }),
  };
}

function argumentOf(command: Message["command"], argument: Buffer): unknown {
  if (command !== "RESPONSE") return printable(argument);
  const packet = readPacket(argument);
  if (packet !== undefined) {
    const { kind, zlib, handle, data } = packet;
    return { packet: kind, packing: zlib ? "zlib" : "raw", handle: handle.toString("hex"), bytes: data.length };
  }
  const status = statusOf(argument);
  return status === undefined ? printable(argument) : { status };
}

/** Two zigzag varints of one byte each are a status frame: the only thing of that form. */
function statusOf(frame: Buffer): string | undefined {
  if (frame.length !== 2 || frame[1] !== 0) return undefined;
  if (frame[0] === 0x14) return "success";
  return frame[0] === 0x28 ? "failure" : undefined;
}
