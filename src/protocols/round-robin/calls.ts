/** What goes with a request between a client and a worker of this protocol, and its form for other protocols. */
import { LaboroError } from "../../base/errors.js";
import { EMPTY, FAILURE, isArgument, type Message, MQS_MORE, STREAM } from "./frames.js";
import { makePacket } from "./stream.js";

/** With a request: what the client sent, for a worker that understands it. */
export class ClientCall {
  constructor(
    readonly client: Buffer,
    readonly message: Message,
  ) {}
}

/** With an answer: the frames that the client gets, as the worker sent them. */
export class ForwardedReply {
  constructor(readonly frames: readonly Uint8Array[]) {}
}

/** With an answer that is none: the worker has a slot free again, and said no more. */
export const SLOT_FREED = Symbol("the slot is free");

const LINE = Buffer.from("\n");
const ABORTED = makePacket({ kind: "abort", zlib: false, handle: Buffer.alloc(8), data: EMPTY });

/**
 * What a RESPONSE says where a command was refused or lost. Who asked for a stream takes whatever comes for a packet, and the original
 * reads on past the end of a status: it gets a packet that aborts the stream.
 */
export const failureReply = (command: Buffer | undefined): Buffer =>
  isArgument(command, STREAM) || isArgument(command, MQS_MORE) ? ABORTED : FAILURE;

export const isFailureReply = (frame: Uint8Array | undefined): boolean => frame === FAILURE || frame === ABORTED;

/** Frames as one body: itself where there is one, lines where there are several. */
export function bodyOf(frames: readonly Buffer[]): Buffer {
  if (frames.length < 2) return frames[0] ?? EMPTY;
  return Buffer.concat(frames.flatMap((frame, at) => (at === 0 ? [frame] : [LINE, frame])));
}

/** The arguments of the RESPONSE for what a worker of another protocol answered. */
export function replyArguments(command: Buffer, body: Uint8Array, failed: boolean): readonly Uint8Array[] {
  if (failed) return [failureReply(command)];
  if (command.equals(STREAM)) {
    return [makePacket({ kind: "finished", zlib: false, handle: Buffer.alloc(8), data: Buffer.from(body) })];
  }
  return body.length === 0 ? [] : [body];
}

/** The body of a RESPONSE, for a caller of another protocol. */
export function readReply(args: readonly Buffer[]): Buffer {
  if (args.length === 1 && args[0]?.equals(FAILURE) === true) {
    throw new LaboroError("LABORO_SERVICE_FAILED", "the round-robin worker answered with the status failure");
  }
  return bodyOf(args);
}
