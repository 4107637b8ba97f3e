/** A peer on a plain TCP stream: its bytes cut into messages for a session, and the session's messages written. */
import type { Socket } from "node:net";
import type { TracedMessage as ShownMessage } from "../../../base/traced-connections.js";
import type { ListenerContext, ListenerName } from "../../../broker/listeners/listener.js";
import type { TcpPeer } from "../../../broker/listeners/tcp.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { MESSAGE_LIMIT } from "../codec.js";
import { Framer, type Layout } from "../framer.js";
import type { Hello } from "../messages.js";
import { type Identity, rawIdentity } from "./identity.js";
import type { FuqSessionContext } from "./session-context.js";

/** One version of the protocol, as bytes. */
export interface StreamFormat<In, Out> {
  readonly listener: ListenerName;
  readonly protocol: string;
  readonly layout: Layout;
  readonly decode: (bytes: Uint8Array) => In;
  readonly encode: (message: Out) => Buffer;
  readonly describe: (message: In | Out) => ShownMessage;
}

export interface StreamSession<In> {
  /** The peer has said who it is. */
  readonly joined: boolean;
  start(): void;
  onMessage(message: In): void;
  onClose(): void;
}

export type StreamContext<Out> = Omit<FuqSessionContext, "transport" | "known"> & {
  readonly transport: { readonly send: (message: Out) => void; readonly close: () => void };
};

/** Who connects says who it is within this time. */
export const JOIN_TIMEOUT_MS = 30_000;
/** Bytes that may wait for a peer that does not read. */
export const UNREAD_LIMIT = 16 * 1024 * 1024;
/** How long the other side's end is waited for. */
const CLOSE_TIMEOUT_MS = 1_000;

export function acceptStream<In, Out>(
  context: ListenerContext,
  { listener: door, protocol, layout, decode, encode, describe: shown }: StreamFormat<In, Out>,
  socket: Socket,
  address: string,
  makeSession: (parts: StreamContext<Out>) => StreamSession<In>,
): TcpPeer {
  const { core, log, peerErrors: complaints, connections: conversations, settings } = context;
  const traced = conversations.open(protocol, address);
  const onPeerError = (why: string): void => complaints.report(door, address, "LABORO_BAD_MESSAGE", why);
  const close = (): void => leave(socket);
  const send = (message: Out): void => {
    if (socket.writableEnded || socket.destroyed) return;
    traced.sent(() => shown(message));
    socket.write(encode(message));
    if (socket.writableLength <= UNREAD_LIMIT) return;
    onPeerError(`it does not read: ${socket.writableLength} bytes wait for it`);
    socket.destroy();
  };
  const port = socket.remotePort ?? 0;
  const session = makeSession({
    core,
    log,
    transport: { send, close },
    onPeerError,
    identify: (hello: Hello | undefined): Identity => rawIdentity(core, `${door}-raw`, address, port, hello),
    profile: { protocol, pool: settings.pool ?? DEFAULT_POOL, address },
    onNamed: (name) => traced.setPeer(name),
  });
  const silent = setTimeout(() => {
    if (session.joined) return;
    onPeerError("it has not said who it is");
    close();
  }, JOIN_TIMEOUT_MS);
  const framer = new Framer(layout, MESSAGE_LIMIT);
  socket.on("data", (chunk) => {
    const { messages, failure } = framer.push(chunk);
    for (const bytes of messages) {
      if (socket.writableEnded) return;
      const message = decode(bytes);
      traced.received(() => shown(message));
      session.onMessage(message);
    }
    if (failure === undefined || socket.writableEnded) return;
    onPeerError(failure.message);
    close();
  });
  socket.once("close", () => {
    clearTimeout(silent);
    traced.close();
    session.onClose();
  });
  session.start();
  return { shutdown: close };
}

function leave(socket: Socket): void {
  if (socket.writableEnded) return;
  socket.end();
  const patience = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS);
  socket.once("close", () => clearTimeout(patience));
}
