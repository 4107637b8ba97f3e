/** A peer on a plain TCP stream: its bytes cut into messages for a session, and the session's messages written. */
import type { Socket } from "node:net";
import type { Message as ShownMessage } from "../../../base/conversations.js";
import type { DoorContext, DoorName } from "../../../broker/listeners/door.js";
import type { TcpPeer } from "../../../broker/listeners/tcp.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { MESSAGE_LIMIT } from "../codec.js";
import { Framer, type Layout } from "../framer.js";
import type { Hello } from "../messages.js";
import { type Identity, rawIdentity } from "./identity.js";
import type { ForemanParts } from "./parts.js";

/** One version of the protocol, as bytes. */
export interface Form<In, Out> {
  readonly door: DoorName;
  readonly protocol: string;
  readonly layout: Layout;
  readonly decode: (bytes: Uint8Array) => In;
  readonly encode: (message: Out) => Buffer;
  readonly shown: (message: In | Out) => ShownMessage;
}

export interface StreamSession<In> {
  /** The peer has said who it is. */
  readonly joined: boolean;
  start(): void;
  onMessage(message: In): void;
  onClose(): void;
}

export type StreamParts<Out> = Omit<ForemanParts, "transport" | "known"> & {
  readonly transport: { readonly send: (message: Out) => void; readonly close: () => void };
};

/** Who connects says who it is within this time. */
export const FIRST_WORD_MS = 30_000;
/** Bytes that may wait for a peer that does not read. */
export const UNREAD_LIMIT = 16 * 1024 * 1024;
/** How long the other side's end is waited for. */
const GOODBYE_MS = 1_000;

export function acceptStream<In, Out>(
  context: DoorContext,
  { door, protocol, layout, decode, encode, shown }: Form<In, Out>,
  socket: Socket,
  address: string,
  makeSession: (parts: StreamParts<Out>) => StreamSession<In>,
): TcpPeer {
  const { core, log, complaints, conversations, settings } = context;
  const conversation = conversations.begin(protocol, address);
  const complain = (why: string): void => complaints.about(door, address, "LABORO_BAD_MESSAGE", why);
  const close = (): void => leave(socket);
  const send = (message: Out): void => {
    if (socket.writableEnded || socket.destroyed) return;
    conversation.said(() => shown(message));
    socket.write(encode(message));
    if (socket.writableLength <= UNREAD_LIMIT) return;
    complain(`it does not read: ${socket.writableLength} bytes wait for it`);
    socket.destroy();
  };
  const port = socket.remotePort ?? 0;
  const session = makeSession({
    core,
    log,
    transport: { send, close },
    complain,
    identify: (hello: Hello | undefined): Identity => rawIdentity(core, `${door}-raw`, address, port, hello),
    profile: { protocol, pool: settings.pool ?? DEFAULT_POOL, address },
    named: (name) => conversation.named(name),
  });
  const silent = setTimeout(() => {
    if (session.joined) return;
    complain("it has not said who it is");
    close();
  }, FIRST_WORD_MS);
  const framer = new Framer(layout, MESSAGE_LIMIT);
  socket.on("data", (chunk) => {
    const { messages, failure } = framer.push(chunk);
    for (const bytes of messages) {
      if (socket.writableEnded) return;
      const message = decode(bytes);
      conversation.heard(() => shown(message));
      session.onMessage(message);
    }
    if (failure === undefined || socket.writableEnded) return;
    complain(failure.message);
    close();
  });
  socket.once("close", () => {
    clearTimeout(silent);
    conversation.end();
    session.onClose();
  });
  session.start();
  return { bye: close };
}

function leave(socket: Socket): void {
  if (socket.writableEnded) return;
  socket.end();
  const patience = setTimeout(() => socket.destroy(), GOODBYE_MS);
  socket.once("close", () => clearTimeout(patience));
}
