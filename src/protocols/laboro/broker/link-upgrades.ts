/** WebSockets at the main listener that ask for laboro's own link. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { endSocket } from "../../../base/connection-guard.js";
import { type Auth, isRefusal } from "../../../broker/access/auth.js";
import type { Role } from "../../../broker/access/roles.js";
import { LINK_PATH, type LinkEndpoint } from "../../../broker/listeners/main-listener.js";
import { SERVER_OPTIONS } from "../connection.js";
import { SUBPROTOCOL } from "../messages.js";
import type { Links } from "./links.js";

export class LinkUpgrades implements LinkEndpoint {
  readonly #links: Links;
  readonly #auth: Auth;
  readonly #sockets = new WebSocketServer(SERVER_OPTIONS);

  constructor(links: Links, auth: Auth) {
    this.#links = links;
    this.#auth = auth;
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    const offered = request.headers["sec-websocket-protocol"]?.split(",").map((name) => name.trim()) ?? [];
    if (request.url !== LINK_PATH) {
      refuse(socket, "404 Not Found", "there is nothing here");
    } else if (!offered.includes(SUBPROTOCOL)) {
      refuse(socket, "426 Upgrade Required", `expected the WebSocket subprotocol ${SUBPROTOCOL}`);
    } else {
      const admitted = this.#auth.authenticate(request, false);
      if (isRefusal(admitted))
        void admitted.sendAfter.then(() => refuse(socket, STATUS[admitted.status], admitted.why));
      else this.#accept(request, socket, head, admitted.role);
    }
  }

  #accept(request: IncomingMessage, socket: Duplex, head: Buffer, role: Role): void {
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const transport = request.socket as Socket;
      transport.setNoDelay(true);
      this.#links.open(webSocket, { transport }, role, transport.remoteAddress ?? "unknown");
    });
  }

  close(): void {
    this.#links.close();
  }

  terminate(): void {
    for (const socket of this.#sockets.clients) socket.terminate();
  }
}

const STATUS = {
  401: "401 Unauthorized",
  403: "403 Forbidden",
  421: "421 Misdirected Request",
  429: "429 Too Many Requests",
} as const;

function refuse(socket: Duplex, status: string, reason: string): void {
  const body = `${reason}\n`;
  const length = Buffer.byteLength(body);
  const head = `HTTP/1.1 ${status}\r\ncontent-type: text/plain\r\ncontent-length: ${length}\r\nconnection: close\r\n\r\n`;
  endSocket(socket, head + body);
}
