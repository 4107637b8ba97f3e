/**
 * A worker on a WebSocket, as the original programs speak: it is known by its cookie, it speaks first, and it comes back. The WebSocket
 * is at /node/persistent, and names no subprotocol.
 */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { endSocket } from "../../../base/connection-guard.js";
import { asLaboroError } from "../../../base/errors.js";
import type { ListenerContext } from "../../../broker/listeners/listener.js";
import { SessionId } from "../../../model/ids.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { decodeMessage, encodeMessage, MESSAGE_LIMIT } from "../codec.js";
import { describeMessage } from "../describe.js";
import type { Message } from "../messages.js";
import { HttpError } from "./http/json-http.js";
import type { FuqNode } from "./http/nodes.js";
import { GRACE_MS } from "./http/polling-worker.js";
import { UNREAD_LIMIT } from "./listener.js";
import { FuqWorkerSession } from "./session.js";
import type { FuqSessionOptions, WorkerConnection } from "./session-context.js";

/** Its cookie has authenticated it, and an original may be silent for a while. */
const JOIN_TIMEOUT_MS = 30_000;
const PROTOCOL = "fuq 2 (WebSocket)";
/** How often the worker is asked whether it is there, and how often it may not answer. */
const PING_MS = 60_000;
const PINGS_MISSED = 2;

const OPTIONS = { noServer: true, perMessageDeflate: false, maxPayload: MESSAGE_LIMIT, closeTimeout: 5_000 } as const;
const SOCKETS = new WebSocketServer(OPTIONS);

/** `nodeOf` refuses with 401 or 403 a worker that has no cookie that is known. */
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
    // The original comes back at once, and would wait for ever for the OK to what it sends now.
    if (context.core.stopping) throw new HttpError(503, "the broker is stopping");
    SOCKETS.handleUpgrade(request, socket, head, (webSocket) => {
      (request.socket as Socket).setNoDelay(true);
      acceptFuqWebSocket(context, node, webSocket, request.socket.remoteAddress ?? "unknown");
    });
  } catch (cause) {
    if (!(cause instanceof HttpError)) {
      const { code, message } = asLaboroError(cause);
      context.log.error({ code }, `a worker of fuq could not be admitted: ${message}`);
    }
    refuse(socket, cause instanceof HttpError ? cause : new HttpError(500));
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

export interface FuqLinkOptions extends Partial<FuqSessionOptions> {
  readonly pingMs?: number;
}

/** `node` is the worker whose cookie came with the upgrade. */
export function acceptFuqWebSocket(
  context: ListenerContext,
  node: FuqNode,
  webSocket: WebSocket,
  address: string,
  { pingMs = PING_MS, ...options }: FuqLinkOptions = {},
): WorkerConnection<Message> {
  const { core, log, peerErrors, connections, settings } = context;
  const { id, info } = node;
  // It does not end by itself, and cannot be helped.
  if (node.stuck === true) webSocket.close(1008, "it waits for an answer that was lost");
  const traced = connections.open(PROTOCOL, address);
  const onPeerError = (why: string): void => peerErrors.report("main", address, "LABORO_BAD_MESSAGE", `fuq: ${why}`);
  const connection: WorkerConnection<Message> = {
    send: (message) => {
      if (webSocket.readyState !== webSocket.OPEN) return;
      traced.sent(() => describeMessage(message));
      webSocket.send(encodeMessage(message));
      if (webSocket.bufferedAmount <= UNREAD_LIMIT) return;
      onPeerError(`it does not read: ${webSocket.bufferedAmount} bytes wait for it`);
      webSocket.terminate();
    },
    close: (code, reason) => webSocket.close(code, reason?.slice(0, 100)),
  };
  const session = new FuqWorkerSession(
    {
      core,
      log,
      connection,
      onPeerError,
      knownWorker: id,
      identify: () => {
        const { uniqueName: name, tags } = info;
        return { id, session: SessionId(name), name, tags, resumable: true, stopping: node.stopping };
      },
      profile: { protocol: PROTOCOL, pool: settings.pool ?? DEFAULT_POOL, address, graceMs: GRACE_MS },
      onStuck: () => {
        node.stuck = true;
      },
      onNamed: (name) => traced.setPeer(name),
    },
    { greeting: "worker", original: true, ...options },
  );
  const silent = setTimeout(() => {
    if (!session.joined) webSocket.close(1008, "it has not said HELLO");
  }, JOIN_TIMEOUT_MS);
  const stopPinging = ping(webSocket, `f2w_${info.uniqueName}`, pingMs);
  webSocket.on("message", (data, isBinary) => {
    if (!isBinary) {
      onPeerError("a message of text");
      webSocket.close(1003, "binary messages only");
      return;
    }
    try {
      const message = decodeMessage(data as Buffer);
      traced.received(() => describeMessage(message));
      session.onMessage(message);
    } catch (cause) {
      onPeerError(asLaboroError(cause).message);
      webSocket.close(1002, "not a message of fuq");
    }
  });
  webSocket.on("error", (error) => log.info({ peer: address, error: error.message }, "a connection failed"));
  webSocket.once("close", () => {
    clearTimeout(silent);
    stopPinging();
    traced.close();
    session.onClose();
  });
  session.start();
  return connection;
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
