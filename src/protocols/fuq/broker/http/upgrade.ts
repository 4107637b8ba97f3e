/** GET /node/persistent: a WebSocket for the worker whose cookie comes along. It names no subprotocol. */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { endSocket } from "../../../../base/connection-guard.js";
import { asLaboroError } from "../../../../base/errors.js";
import type { ListenerContext } from "../../../../broker/listeners/listener.js";
import { MESSAGE_LIMIT } from "../../codec.js";
import { acceptFuqWebSocket } from "../web-socket.js";
import { HttpError } from "./json-http.js";
import type { FuqNode } from "./nodes.js";

const SOCKETS = { noServer: true, perMessageDeflate: false, maxPayload: MESSAGE_LIMIT, closeTimeout: 5_000 } as const;

export class Upgrades {
  readonly #context: ListenerContext;
  readonly #nodeOf: (request: IncomingMessage) => Promise<FuqNode>;
  readonly #sockets = new WebSocketServer(SOCKETS);

  /** `nodeOf` refuses with 401 or 403 who has no cookie that is known. */
  constructor(context: ListenerContext, nodeOf: (request: IncomingMessage) => Promise<FuqNode>) {
    this.#context = context;
    this.#nodeOf = nodeOf;
  }

  async upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on("error", () => socket.destroy());
    try {
      const node = await this.#nodeOf(request);
      // The original comes back at once, and would wait for ever for the OK to what it sends now.
      if (this.#context.core.stopping) throw new HttpError(503, "the broker is stopping");
      this.#sockets.handleUpgrade(request, socket, head, (webSocket) => {
        (request.socket as Socket).setNoDelay(true);
        acceptFuqWebSocket(this.#context, node, webSocket, request.socket.remoteAddress ?? "unknown");
      });
    } catch (cause) {
      if (!(cause instanceof HttpError)) {
        const { code, message } = asLaboroError(cause);
        this.#context.log.error({ code }, `a worker of fuq could not be admitted: ${message}`);
      }
      refuse(socket, cause instanceof HttpError ? cause : new HttpError(500));
    }
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
