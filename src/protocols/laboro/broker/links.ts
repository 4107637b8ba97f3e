/** laboro's own links at a broker: workers open them with JOIN, clients with HELLO. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { endSocket } from "../../../base/connection-guard.js";
import { badMessage, LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { type Auth, isRefusal } from "../../../broker/access/auth.js";
import { type Role, requireRole } from "../../../broker/access/tokens.js";
import type { Core } from "../../../broker/core.js";
import { LINK_PATH, type LinkEndpoint } from "../../../broker/listeners/main-listener.js";
import type { BrokerInfo } from "../../../broker/operations/operation.js";
import {
  type CloseReason,
  Connection,
  type ConnectionOptions,
  type LinkHandler,
  SERVER_OPTIONS,
} from "../connection.js";
import { type MemorySocket, memoryPair } from "../memory-transport.js";
import {
  type FromClient,
  type FromWorker,
  LINK_VERSION,
  SUBPROTOCOL,
  type ToClient,
  type ToWorker,
} from "../messages.js";
import { ClientSession } from "./client-session.js";
import { WorkerSession, type WorkerSessionOptions } from "./worker-session.js";

type Caller = Connection<FromWorker | FromClient, ToWorker | ToClient>;

interface LinkOptions extends WorkerSessionOptions {
  /** JOIN or HELLO must come within this time. */
  readonly greetingTimeoutMs: number;
  readonly log: Log;
}

export class Links {
  readonly #core: Core;
  readonly #auth: Auth;
  readonly #info: BrokerInfo;
  readonly #options: LinkOptions;
  readonly #connections = new Set<Caller>();
  #closed = false;

  constructor(core: Core, auth: Auth, info: BrokerInfo, options: LinkOptions) {
    this.#core = core;
    this.#auth = auth;
    this.#info = info;
    this.#options = options;
  }

  /** A link for a worker or client of this process. Throws LABORO_BAD_TOKEN. */
  openInProcess(token: string): MemorySocket {
    if (this.#closed) throw new LaboroError("LABORO_BROKER_UNREACHABLE", "the broker of this process has stopped");
    const role = this.#auth.roleOfToken(token);
    if (role === undefined) throw new LaboroError("LABORO_BAD_TOKEN", "the token is not known here");
    const [near, far] = memoryPair();
    this.open(near, {}, role, "in process");
    return far;
  }

  open(
    socket: WebSocket | MemorySocket,
    options: Pick<ConnectionOptions, "transport">,
    role: Role,
    address: string,
  ): void {
    const { log, greetingTimeoutMs } = this.#options;
    const traced = this.#info.connections.open(SUBPROTOCOL, address);
    const silent = setTimeout(
      () => connection.close(1008, "LABORO_BAD_MESSAGE: neither JOIN nor HELLO came"),
      greetingTimeoutMs,
    );
    const connection: Caller = new Connection(
      socket,
      { from: "caller", log, traced, ...options },
      {
        onMessages: (batch, bytes) => {
          clearTimeout(silent);
          const [first] = batch;
          if (first?.type === "JOIN" || first?.type === "HELLO") traced.setPeer(first.name);
          this.#firstFrame(connection, batch, bytes, role, address);
        },
        onClose: () => {
          clearTimeout(silent);
          this.#connections.delete(connection);
        },
      },
    );
    this.#connections.add(connection);
  }

  /** The first message decides whether the peer is a worker or a client; the session takes the connection over. */
  #firstFrame(
    connection: Caller,
    batch: readonly (FromWorker | FromClient)[],
    bytes: number,
    role: Role,
    address: string,
  ): void {
    const [first, ...rest] = batch;
    if (first?.type === "JOIN" || first?.type === "HELLO") checkVersion(first.version);
    if (first?.type === "JOIN") {
      requireRole(role, "worker", "a worker");
      const link = connection.handOver<FromWorker, ToWorker>(this.#listener(connection, () => session));
      const session = new WorkerSession(this.#core, link, first, { ...this.#options, address });
      session.onMessages(rest as FromWorker[]);
    } else if (first?.type === "HELLO") {
      const { broker, heartbeatMs } = this.#options;
      const link = connection.handOver<FromClient, ToClient>(this.#listener(connection, () => session));
      const session = new ClientSession(this.#core, this.#info, { role, name: first.name }, link);
      link.send({ type: "HELLO_ACK", version: LINK_VERSION, broker, heartbeatMs });
      session.sendBrokers();
      link.startHeartbeat(heartbeatMs);
      session.onMessages(rest as FromClient[], bytes);
    } else {
      throw badMessage(`${first?.type ?? "nothing"} came first, expected JOIN or HELLO`);
    }
  }

  #listener<In>(
    connection: Caller,
    session: () => { onMessages(batch: readonly In[], bytes: number): void; onClose(reason: CloseReason): void },
  ): LinkHandler<In> {
    return {
      onMessages: (batch, bytes) => session().onMessages(batch, bytes),
      onClose: (reason) => {
        this.#connections.delete(connection);
        session().onClose(reason);
      },
    };
  }

  /** Starts the closing handshake with all peers. */
  close(): void {
    this.#closed = true;
    for (const connection of this.#connections) connection.close(1001, "the broker is stopping");
  }
}

/** Both ends must speak the same version. */
function checkVersion(version: number): void {
  if (version === LINK_VERSION) return;
  throw new LaboroError("LABORO_VERSION", `the peer speaks link version ${version}, this broker ${LINK_VERSION}`);
}

/** WebSockets at the main listener that ask for laboro's own link. */
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
