/**
 * Connections of fuq workers. The listeners `fuq` (version 2) and `fuq1` accept raw streams, as specified.
 * /node/persistent on the main listener accepts WebSockets without subprotocol, as the original programs open them.
 * Such a worker is identified by its cookie, sends first, and can reconnect.
 */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { endSocket } from "../../../base/connection-guard.js";
import { asLaboroError } from "../../../base/errors.js";
import {
  type ListenerContext,
  type ListenerFactory,
  openTcpListener,
  type TcpPeer,
} from "../../../broker/listeners/listener.js";
import { WorkerId } from "../../../model/ids.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { Framer, MESSAGE_LIMIT } from "../codec.js";
import { FUQ, FUQ1, type StreamFormat } from "../describe.js";
import type { WorkerConnection } from "./foreman-tasks.js";
import { HttpError } from "./http/json-http.js";
import type { FuqNode } from "./http/nodes.js";
import { GRACE_MS } from "./http/polling-worker.js";
import { type FuqSessionOptions, FuqWorkerSession } from "./session.js";
import { FuqWorkerSessionV1 } from "./session-v1.js";

/** Bytes of a message of a raw peer that has not joined. */
const GREETING_LIMIT = 1024 * 1024;
/** Bytes that may wait for a peer that does not read. */
const UNREAD_LIMIT = 16 * 1024 * 1024;
/** On a WebSocket: the cookie has authenticated the worker, and an original may be silent for a while. */
const JOIN_TIMEOUT_MS = 30_000;
const PING_MS = 60_000;
const PINGS_MISSED = 2;

export interface FuqLinkOptions extends Partial<FuqSessionOptions> {
  readonly pingMs?: number;
}

export const openFuqListener: ListenerFactory = (context, address) => openFuqListenerWith({}, context, address);

export const openFuqListenerWith = (
  options: FuqLinkOptions,
  ...[context, listenAddress]: Parameters<ListenerFactory>
) =>
  openTcpListener("fuq", context, listenAddress, (...peer) =>
    acceptStream(context, FUQ, peer, (connection) => {
      return new FuqWorkerSession(connection, { greeting: "foreman", original: false, ...options });
    }),
  );

export const openFuq1Listener: ListenerFactory = (context, listenAddress) =>
  openTcpListener("fuq1", context, listenAddress, (...peer) =>
    acceptStream(context, FUQ1, peer, (connection) => new FuqWorkerSessionV1(connection)),
  );

/** What sessions need on any kind of connection, and the trace of its messages. */
function sessionBase(context: ListenerContext, listener: "main" | "fuq" | "fuq1", protocol: string, address: string) {
  const { core, log, peerErrors, connections, settings } = context;
  const traced = connections.open(protocol, address);
  const profile = { protocol, pool: settings.pool ?? DEFAULT_POOL, address };
  const onPeerError = (why: string): void => peerErrors.report(listener, address, "LABORO_BAD_MESSAGE", `fuq: ${why}`);
  return { core, log, traced, profile, onPeerError, onNamed: (name: string): void => traced.setPeer(name) };
}

interface StreamSession<In> {
  start(): void;
  onMessage(message: In): void;
  onClose(): void;
}

function acceptStream<In, Out>(
  context: ListenerContext,
  { name, protocol, layout, decode, encode, describe }: StreamFormat<In, Out>,
  [socket, address, greeted]: Parameters<Parameters<typeof openTcpListener>[3]>,
  createSession: (connection: WorkerConnection<Out>) => StreamSession<In>,
): TcpPeer {
  const base = sessionBase(context, name, protocol, address);
  const { traced, onPeerError } = base;
  const close = (): void => {
    if (!socket.writableEnded) endSocket(socket);
  };
  let named = false;
  const session = createSession({
    ...base,
    id: WorkerId(`${name}-raw:${address}:${socket.remotePort ?? 0}`),
    send: (message) => {
      if (socket.writableEnded || socket.destroyed) return;
      traced.sent(() => describe(message));
      socket.write(encode(message));
      if (socket.writableLength <= UNREAD_LIMIT) return;
      onPeerError(`it does not read: ${socket.writableLength} bytes wait for it, disconnected`);
      socket.destroy();
    },
    close,
    onNamed: (worker) => {
      base.onNamed(worker);
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
    const tooLong =
      !named && framer.pending > GREETING_LIMIT ? `a greeting of more than ${GREETING_LIMIT} bytes` : undefined;
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

// WebSockets

const OPTIONS = { noServer: true, perMessageDeflate: false, maxPayload: MESSAGE_LIMIT, closeTimeout: 5_000 } as const;
const SOCKETS = new WebSocketServer(OPTIONS);

/** `nodeOf` refuses a worker without a known cookie with 401 or 403. */
export async function upgradeToWebSocket(
  context: ListenerContext,
  nodeOf: (request: IncomingMessage) => Promise<FuqNode>,
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): Promise<void> {
  socket.on("error", () => socket.destroy());
  try {
    const node = await nodeOf(request);
    // The original reconnects at once, and would wait forever for the OK to a message that it sends now.
    if (context.core.stopping) throw new HttpError(503, "the broker is stopping");
    SOCKETS.handleUpgrade(request, socket, head, (webSocket) => {
      (request.socket as Socket).setNoDelay(true);
      acceptFuqWebSocket(context, node, webSocket, request.socket.remoteAddress ?? "unknown");
    });
  } catch (cause) {
    const { code, message } = asLaboroError(cause);
    const isRefusal = cause instanceof HttpError;
    if (!isRefusal) context.log.error({ code }, `a fuq worker could not be admitted: ${message}`);
    refuse(socket, isRefusal ? cause : new HttpError(500));
  }
}

function refuse(socket: Duplex, { status, message }: HttpError): void {
  const body = `${message}\n`;
  endSocket(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\ncontent-type: text/plain; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}

export function acceptFuqWebSocket(
  context: ListenerContext,
  node: FuqNode,
  webSocket: WebSocket,
  address: string,
  { pingMs = PING_MS, ...options }: FuqLinkOptions = {},
): void {
  // It does not end by itself, and no message ends its wait.
  if (node.stuck === true) webSocket.close(1008, "it waits for an answer that was lost");
  const base = sessionBase(context, "main", "fuq 2 (WebSocket)", address);
  const { traced, onPeerError, log } = base;
  const session = new FuqWorkerSession(
    {
      ...base,
      profile: { ...base.profile, graceMs: GRACE_MS },
      id: node.id,
      node,
      send: (message) => {
        if (webSocket.readyState !== webSocket.OPEN) return;
        traced.sent(() => FUQ.describe(message));
        webSocket.send(FUQ.encode(message));
        if (webSocket.bufferedAmount <= UNREAD_LIMIT) return;
        onPeerError(`it does not read: ${webSocket.bufferedAmount} bytes wait for it, disconnected`);
        webSocket.terminate();
      },
      close: (code, reason) => webSocket.close(code, reason?.slice(0, 100)),
    },
    { greeting: "worker", original: true, ...options },
  );
  const joinTimer = setTimeout(() => {
    if (!session.joined) webSocket.close(1008, "it has not said HELLO");
  }, JOIN_TIMEOUT_MS);
  const stopPinging = ping(webSocket, `f2w_${node.info.uniqueName}`, pingMs);
  webSocket.on("message", (data, isBinary) => {
    if (!isBinary) {
      onPeerError("a text message, expected a binary one");
      webSocket.close(1003, "binary messages only");
      return;
    }
    try {
      const message = FUQ.decode(data as Buffer);
      traced.received(() => FUQ.describe(message));
      session.onMessage(message);
    } catch (cause) {
      onPeerError(asLaboroError(cause).message);
      webSocket.close(1002, "not a message of fuq");
    }
  });
  webSocket.on("error", (error) =>
    log.info({ peer: address, error: error.message }, "the WebSocket of a fuq worker failed"),
  );
  webSocket.once("close", () => {
    clearTimeout(joinTimer);
    stopPinging();
    traced.close();
    session.onClose();
  });
  session.start();
}

function ping(webSocket: WebSocket, tag: string, everyMs: number): () => void {
  let count = 0;
  let missed = 0;
  webSocket.on("pong", () => {
    missed = 0;
  });
  const timer = setInterval(() => {
    if (++missed > PINGS_MISSED) webSocket.close(1001, "two pings were not answered");
    else webSocket.ping(`PING:${tag}:${++count}`);
  }, everyMs);
  return () => clearInterval(timer);
}
