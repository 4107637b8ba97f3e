/** A peer on a plain TCP stream: its bytes cut into messages for a session, and the session's messages written. */
import type { Socket } from "node:net";
import { endSocket } from "../../../base/connection-guard.js";
import type { TracedMessage } from "../../../base/traced-connections.js";
import type { ListenerContext, ListenerName } from "../../../broker/listeners/listener.js";
import type { TcpPeer } from "../../../broker/listeners/tcp.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { MESSAGE_LIMIT } from "../codec.js";
import { Framer, type Layout } from "../framer.js";
import type { Hello } from "../messages.js";
import { absentOwnerOf, type Identity, rawIdentity } from "./identity.js";
import type { FuqSessionContext } from "./session-context.js";

/** One version of the protocol, as bytes. */
export interface StreamFormat<In, Out> {
  readonly listener: ListenerName;
  readonly protocol: string;
  readonly layout: Layout;
  readonly decode: (bytes: Uint8Array) => In;
  readonly encode: (message: Out) => Buffer;
  readonly describe: (message: In | Out) => TracedMessage;
}

export interface StreamSession<In> {
  start(): void;
  onMessage(message: In): void;
  onClose(): void;
}

export type StreamContext<Out> = Omit<FuqSessionContext, "connection" | "knownWorker"> & {
  readonly connection: { readonly send: (message: Out) => void; readonly close: () => void };
};

/** Bytes of a message of a peer that has not said who it is. */
const GREETING_LIMIT = 1024 * 1024;
/** Bytes that may wait for a peer that does not read. */
export const UNREAD_LIMIT = 16 * 1024 * 1024;

export function acceptStream<In, Out>(
  context: ListenerContext,
  { listener, protocol, layout, decode, encode, describe }: StreamFormat<In, Out>,
  socket: Socket,
  address: string,
  greeted: () => void,
  makeSession: (context: StreamContext<Out>) => StreamSession<In>,
): TcpPeer {
  const { core, log, peerErrors, connections, settings } = context;
  const traced = connections.open(protocol, address);
  const onPeerError = (why: string): void => peerErrors.report(listener, address, "LABORO_BAD_MESSAGE", why);
  const close = (): void => {
    if (!socket.writableEnded) endSocket(socket);
  };
  const send = (message: Out): void => {
    if (socket.writableEnded || socket.destroyed) return;
    traced.sent(() => describe(message));
    socket.write(encode(message));
    if (socket.writableLength <= UNREAD_LIMIT) return;
    onPeerError(`it does not read: ${socket.writableLength} bytes wait for it`);
    socket.destroy();
  };
  const port = socket.remotePort ?? 0;
  let named = false;
  const prefix = `${listener}-raw`;
  const session = makeSession({
    core,
    log,
    connection: { send, close },
    onPeerError,
    identify: (hello: Hello | undefined): Identity => rawIdentity(core, prefix, address, port, hello),
    absentOwnerOf: (pair) => absentOwnerOf(core, prefix, address, [pair]),
    profile: { protocol, pool: settings.pool ?? DEFAULT_POOL, address },
    onNamed: (name) => {
      traced.setPeer(name);
      named = true;
      greeted();
    },
  });
  const framer = new Framer(layout, MESSAGE_LIMIT);
  socket.on("data", (chunk) => {
    const { messages, failure } = framer.push(chunk);
    for (const bytes of messages) {
      if (socket.writableEnded) return;
      const message = decode(bytes);
      traced.received(() => describe(message));
      session.onMessage(message);
    }
    const tooLong = !named && framer.pending > GREETING_LIMIT ? "a greeting that does not end" : undefined;
    const why = failure?.message ?? tooLong;
    if (why === undefined || socket.writableEnded) return;
    onPeerError(why);
    close();
  });
  socket.once("close", () => {
    traced.close();
    session.onClose();
  });
  session.start();
  return { shutdown: close };
}
