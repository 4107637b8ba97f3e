/**
 * The listeners of fuq on plain streams: `fuq` for version 2, by the letter of its text, and `fuq1` for version 1. The bytes of a peer are
 * cut into messages for a session, and the session's messages are written.
 */
import type { Socket } from "node:net";
import { endSocket } from "../../../base/connection-guard.js";
import type { TracedMessage } from "../../../base/traced-connections.js";
import type { ListenerContext, ListenerFactory, ListenerName } from "../../../broker/listeners/listener.js";
import { openTcpListener, type TcpPeer } from "../../../broker/listeners/tcp.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { decodeMessage, encodeMessage, MESSAGE_LIMIT, STREAM_LAYOUT } from "../codec.js";
import { decodeMessageV1, encodeMessageV1, type MessageV1, STREAM_LAYOUT_V1, type UnreadableV1 } from "../codec-v1.js";
import { describeMessage, describeMessageV1 } from "../describe.js";
import { Framer, type Layout } from "../framer.js";
import type { Message, Unreadable } from "../messages.js";
import { FuqWorkerSession } from "./session.js";
import { absentOwnerOf, type FuqSessionContext, type FuqSessionOptions, rawIdentity } from "./session-context.js";
import { FuqWorkerSessionV1 } from "./session-v1.js";

/** One version of the protocol, as bytes. */
interface StreamFormat<In, Out> {
  readonly listener: ListenerName;
  readonly protocol: string;
  readonly layout: Layout;
  readonly decode: (bytes: Uint8Array) => In;
  readonly encode: (message: Out) => Buffer;
  readonly describe: (message: In | Out) => TracedMessage;
}

const FUQ: StreamFormat<Message | Unreadable, Message> = {
  listener: "fuq",
  protocol: "fuq 2",
  layout: STREAM_LAYOUT,
  decode: decodeMessage,
  encode: encodeMessage,
  describe: describeMessage,
};

const FUQ1: StreamFormat<MessageV1 | UnreadableV1, MessageV1> = {
  listener: "fuq1",
  protocol: "fuq 1",
  layout: STREAM_LAYOUT_V1,
  decode: decodeMessageV1,
  encode: encodeMessageV1,
  describe: describeMessageV1,
};

/** Bytes of a message of a peer that has not said who it is. */
const GREETING_LIMIT = 1024 * 1024;
/** Bytes that may wait for a peer that does not read. */
export const UNREAD_LIMIT = 16 * 1024 * 1024;

export const openFuqListener: ListenerFactory = (context, address) => openFuqListenerWith({}, context, address);

/** With other limits than the usual ones. */
export const openFuqListenerWith = (
  options: Partial<FuqSessionOptions>,
  ...[context, listenAddress]: Parameters<ListenerFactory>
) =>
  openTcpListener("fuq", context, listenAddress, (socket, address, greeted) =>
    acceptStream(
      context,
      FUQ,
      socket,
      address,
      greeted,
      (session) => new FuqWorkerSession(session, { greeting: "foreman", original: false, ...options }),
    ),
  );

export const openFuq1Listener: ListenerFactory = (context, listenAddress) =>
  openTcpListener("fuq1", context, listenAddress, (socket, address, greeted) =>
    acceptStream(context, FUQ1, socket, address, greeted, (session) => new FuqWorkerSessionV1(session)),
  );

interface StreamSession<In> {
  start(): void;
  onMessage(message: In): void;
  onClose(): void;
}

function acceptStream<In, Out>(
  context: ListenerContext,
  { listener, protocol, layout, decode, encode, describe }: StreamFormat<In, Out>,
  socket: Socket,
  address: string,
  greeted: () => void,
  makeSession: (context: FuqSessionContext<Out>) => StreamSession<In>,
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
    identify: (hello) => rawIdentity(core, prefix, address, port, hello),
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
