/**
 * The main listener: HTTP, plain and with TLS, on one port. It serves the API, the pages for people, and the WebSockets
 * of laboro's own link. Modules that only HTTP needs are loaded at the first request, because most brokers run one
 * batch.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Server as TlsServer } from "node:tls";
import { type ConnectionGuard, endSocket, type ListenerGuard } from "../../base/connection-guard.js";
import { LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { type Auth, isRefusal, type Refusal } from "../access/auth.js";
import type { CertificatePair } from "../access/certificates.js";
import type { Core } from "../core.js";
import type { BrokerInfo } from "../operations/operation.js";

/** How long to wait for peers to close. */
const CLOSE_TIMEOUT_MS = 200;

/** Headers must end before the guard destroys the connection, so that a slow peer gets its 408. */
const limits = (greetingTimeoutMs: number) => ({
  headersTimeout: Math.ceil(greetingTimeoutMs * 0.6),
  requestTimeout: 120_000,
  keepAliveTimeout: 30_000,
  connectionsCheckingInterval: Math.ceil(greetingTimeoutMs / 8),
});

/** The path of WebSockets: laboro's own link and fuq's. */
export const LINK_PATH = "/node/persistent";

/** Accepts WebSockets. */
interface WebSocketEndpoint {
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

/** laboro's own link. */
export interface LinkEndpoint extends WebSocketEndpoint {
  /** Starts the closing handshake with all peers. */
  close(): void;
  /** Drops the peers that did not close in time. */
  terminate(): void;
}

/** A protocol with its own HTTP paths. */
interface HttpEndpoint extends WebSocketEndpoint {
  handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<void>;
}

interface MainListenerOptions {
  readonly auth: Auth;
  readonly info: BrokerInfo;
  readonly log: Log;
  readonly link: LinkEndpoint;
  /** Called at the first request for it. */
  readonly openFuq: () => Promise<HttpEndpoint>;
  readonly guard: ConnectionGuard;
  /** The certificate for TLS connections; absent if TLS is off. */
  readonly certificate?: () => Promise<CertificatePair>;
}

type ApiModule = typeof import("../api/index.js");

/** The paths of fuq's programs. */
const FUQ_PATH = /^\/(hello|node|job|client)(\/|$)/;

export class MainListener {
  readonly #core: Core;
  readonly #options: MainListenerOptions;
  readonly #server: Server;
  readonly #connected = new Set<Socket>();
  readonly #accept: (socket: Socket) => void;
  #api: ReturnType<ApiModule["createApi"]> | undefined;
  #fuqHttp: Promise<HttpEndpoint> | undefined;
  #metrics: import("../api/metrics.js").Metrics | undefined;
  #closing = false;

  constructor(core: Core, options: MainListenerOptions) {
    this.#core = core;
    this.#options = options;
    const { guard } = options;
    this.#server = createServer(
      limits(guard.greetingTimeoutMs),
      (request, response) => void this.#handleRequest(request, response),
    );
    this.#server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on("clientError", (error, socket) => {
      if (socket.writable) endSocket(socket, `HTTP/1.1 ${statusOf(error)}\r\nconnection: close\r\n\r\n`);
      else socket.destroy();
    });
    this.#accept = acceptConnections(this.#server, guard.of("main"), options.certificate);
    this.#server.on("connection", (socket: Socket) => {
      this.#connected.add(socket);
      socket.once("close", () => this.#connected.delete(socket));
    });
  }

  listen(host: string, port: number): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, host, () => {
        this.#server.off("error", reject);
        this.#server.on("error", (error) =>
          this.#options.log.error({ error: error.message }, "the main listener failed"),
        );
        resolve(this.#server.address() as AddressInfo);
      });
    });
  }

  close(): Promise<void> {
    this.#closing = true;
    this.#options.link.close();
    return new Promise((resolve) => {
      // Peers that do not close in time are dropped.
      const deadline = setTimeout(() => {
        this.#options.link.terminate();
        for (const socket of this.#connected) socket.destroy();
      }, CLOSE_TIMEOUT_MS);
      this.#server.close(() => {
        clearTimeout(deadline);
        resolve();
      });
      this.#server.closeAllConnections();
    });
  }

  /** laboro's own link names its subprotocol, fuq's has none. */
  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    if (request.headers.upgrade?.toLowerCase() !== "websocket") {
      this.#ignoreUpgrade(request, socket as Socket, head);
      return;
    }
    const plain = request.headers["sec-websocket-protocol"] === undefined;
    if (plain && request.url === LINK_PATH) {
      socket.on("error", () => socket.destroy());
      void this.#fuq().then((fuq) => fuq.upgrade(request, socket, head));
    } else this.#options.link.upgrade(request, socket, head);
  }

  /**
   * HTTP clients may offer an upgrade, such as h2c, with any request, and a server may ignore it. Node has left the
   * connection by now, so it gets the request again, without the offer.
   */
  #ignoreUpgrade({ method, url, rawHeaders }: IncomingMessage, socket: Socket, head: Buffer): void {
    const lines = [`${method} ${url} HTTP/1.1`];
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const [name = "", value = ""] = rawHeaders.slice(i, i + 2);
      if (name.toLowerCase() !== "upgrade") lines.push(`${name}: ${value}`);
    }
    socket.pause();
    socket.unshift(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), head]));
    this.#accept(socket);
    process.nextTick(() => socket.resume());
  }

  async #handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url?.split("?", 1)[0] ?? "/";
    response.on("error", () => response.destroy());
    try {
      if (path === "/healthz" || path === "/readyz") this.#serveHealth(path, response);
      else if (path === "/metrics") await this.#serveMetrics(request, response);
      else if (path.startsWith("/api/")) await this.#serveApi(request, response);
      else if (path === "/login" && request.method === "POST") await this.#login(request, response);
      else if (FUQ_PATH.test(path)) await (await this.#fuq()).handle(request, response, path);
      else await this.#servePage(path, request, response);
    } catch (cause) {
      if (cause instanceof LaboroError && cause.code === "LABORO_QUEUE_FULL") {
        sendError(response, 503, cause);
        return;
      }
      this.#options.log.error({ error: String(cause) }, "a request could not be answered");
      if (response.headersSent) response.destroy();
      else
        sendError(response, 500, {
          code: "LABORO_INTERNAL",
          message: "this could not be answered; the log has the reason",
        });
    }
  }

  #fuq(): Promise<HttpEndpoint> {
    this.#fuqHttp ??= this.#options.openFuq();
    return this.#fuqHttp;
  }

  #serveHealth(path: string, response: ServerResponse): void {
    const refusing = path === "/healthz" ? undefined : this.#closing ? "stopping" : this.#core.refusing?.code;
    // No authentication happens here, and the guard would destroy a connection that stays open.
    response.writeHead(refusing === undefined ? 200 : 503, { "content-type": "text/plain", connection: "close" });
    response.end(`${refusing ?? "ok"}\n`);
  }

  async #serveMetrics(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const admitted = this.#options.auth.authenticate(request, true);
    if (isRefusal(admitted)) {
      await refuse(response, admitted);
      return;
    }
    const { Metrics } = await import("../api/metrics.js");
    this.#metrics ??= new Metrics(this.#core, this.#options.info);
    await this.#metrics.answer(response, admitted.role);
  }

  async #serveApi(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const admitted = this.#options.auth.authenticate(request, true);
    if (isRefusal(admitted)) {
      await refuse(response, admitted);
      return;
    }
    this.#api ??= (await import("../api/index.js")).createApi(this.#core, this.#options.info, this.#options.log);
    await this.#api(request, response, admitted.role);
  }

  /** The dashboard sends the code of a login link to get a session. */
  async #login(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const session = this.#options.auth.login(request);
    if (isRefusal(session)) return refuse(response, session);
    response.writeHead(200, { "content-type": "application/json", "cache-control": "no-store" });
    response.end(JSON.stringify(session));
  }

  async #servePage(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refusal = this.#options.auth.checkTransport(request);
    if (refusal !== undefined) {
      await refuse(response, refusal);
      return;
    }
    const { servePage } = await import("../api/pages.js");
    const admitted = this.#options.auth.authenticate(request, true);
    if (isRefusal(admitted)) {
      await admitted.sendAfter;
      response.setHeader("connection", "close");
    }
    await servePage(request, response, path, {
      core: this.#core,
      info: this.#options.info,
      role: isRefusal(admitted) ? undefined : admitted.role,
    });
  }
}

async function refuse(response: ServerResponse, { status, code, why, sendAfter }: Refusal): Promise<void> {
  await sendAfter;
  if (status === 401) response.setHeader("www-authenticate", 'Bearer realm="laboro"');
  sendError(response, status, { code, message: why });
}

function sendError(response: ServerResponse, status: number, error: Pick<LaboroError, "code" | "message">): void {
  const body = JSON.stringify({ error: { code: error.code, message: error.message } });
  // The rest of the request's body is not read.
  response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store", connection: "close" });
  response.end(body);
}

function statusOf(error: NodeJS.ErrnoException): string {
  if (error.code === "HPE_HEADER_OVERFLOW") return "431 Request Header Fields Too Large";
  return error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "408 Request Timeout" : "400 Bad Request";
}

/** Plain HTTP and TLS on one port: a TLS connection begins with the byte 0x16, and no method of HTTP does. */
const TLS_HANDSHAKE = 0x16;

/**
 * Connects an HTTP server to connections that the guard admits, plain or TLS. Returns the function that hands it a
 * connection that was admitted. `certificate` is called when a TLS
 * connection comes; without it there is no TLS. The server sees a connection only after its first byte, and decrypted.
 * The guard destroys a connection whose first byte or handshake does not come.
 */
function acceptConnections(
  server: Server,
  guard: ListenerGuard,
  certificate: (() => Promise<CertificatePair>) | undefined,
): (socket: Socket) => void {
  const listeners = server.listeners("connection") as ((socket: Socket) => void)[];
  const plain = (socket: Socket): void => {
    for (const listener of listeners) listener.call(server, socket);
  };
  const encrypted = certificate === undefined ? undefined : tlsBefore(plain, certificate);
  server.removeAllListeners("connection");
  server.on("connection", (socket: Socket) => {
    if (!guard.admit(socket)) return;
    if (encrypted === undefined) {
      plain(socket);
      return;
    }
    const leave = (): void => void socket.destroy();
    socket.once("error", leave);
    socket.once("data", (chunk: Buffer) => {
      socket.pause();
      socket.off("error", leave);
      socket.unshift(chunk);
      if (chunk[0] === TLS_HANDSHAKE) {
        encrypted(socket);
      } else {
        plain(socket);
        // After the server has attached its handlers, and before the next bytes from the network.
        process.nextTick(() => socket.resume());
      }
    });
  });
  return plain;
}

/** The TLS server is made for the first connection, because that takes longer than the rest of a broker's start. */
function tlsBefore(
  accept: (socket: Socket) => void,
  certificate: () => Promise<CertificatePair>,
): (socket: Socket) => void {
  let current: CertificatePair | undefined;
  let server: TlsServer | undefined;
  return (socket) => {
    socket.on("error", () => socket.destroy());
    Promise.all([certificate(), import("node:tls")]).then(
      ([pair, tls]) => {
        server ??= tls
          .createServer({ ALPNProtocols: ["http/1.1"] })
          .on("secureConnection", accept)
          .on("tlsClientError", (_error, refused) => refused.destroy());
        if (pair !== current) server.setSecureContext({ ...pair, minVersion: "TLSv1.2" });
        current = pair;
        // As of an HTTPS server: a peer that leaves in the handshake is gone at once, not after the guard's timeout.
        socket.allowHalfOpen = false;
        server.emit("connection", socket);
      },
      // The failure is already logged.
      () => socket.destroy(),
    );
  };
}
