/**
 * The main door: HTTP, plain and with TLS, on one port; on it the API, a page for people, and the WebSocket of our own link. What is
 * only for HTTP is loaded when it is first asked for, because most brokers are started to run one batch.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { LaboroError } from "../model/errors.js";
import type { Pair } from "./certificates.js";
import type { Core } from "./core.js";
import type { Complaints } from "./doors/complaints.js";
import type { Conversations } from "./doors/conversations.js";
import type { DoorSettings } from "./doors/door.js";
import type { Entry } from "./entry.js";
import { sharePort } from "./first-byte.js";
import { Gate, isEncrypted, isRefusal, type Refusal } from "./gate.js";
import { LINK_PATH, type LinkOptions, Links } from "./links.js";
import type { BrokerFace } from "./operations/operation.js";
import type { Tokens } from "./tokens.js";

/** How long a goodbye is waited for. */
const GOODBYE_MS = 200;

const DEFAULT_HEADERS_MS = 10_000;

const limits = (headersTimeout: number) => ({
  headersTimeout,
  requestTimeout: 120_000,
  keepAliveTimeout: 30_000,
  connectionsCheckingInterval: headersTimeout / 5,
});

export interface DoorOptions extends LinkOptions {
  readonly tokens: Tokens;
  readonly entry: Entry;
  readonly face: BrokerFace;
  readonly conversations: Conversations;
  readonly complaints: Complaints;
  readonly doorSettings: DoorSettings;
  /** A connection whose first byte, handshake or headers take longer is closed. */
  readonly headersTimeoutMs?: number | undefined;
  /** What is shown to who speaks TLS; absent where nobody may. */
  readonly certificate?: () => Promise<Pair>;
}

type Answering = typeof import("../api/index.js");
type FuqHttp = import("../protocols/fuq/http/index.js").FuqHttp;

/** Where fuq's programs ask. */
const FUQ_PATH = /^\/(hello|node|job|client)(\/|$)/;

export class MainDoor {
  readonly #core: Core;
  readonly #options: DoorOptions;
  readonly #gate: Gate;
  readonly #links: Links;
  readonly #server: Server;
  readonly #connected = new Set<Socket>();
  #api: ReturnType<Answering["createApi"]> | undefined;
  #fuqHttp: Promise<FuqHttp> | undefined;
  #metrics: import("../api/metrics.js").Metrics | undefined;
  #closing = false;

  constructor(core: Core, options: DoorOptions) {
    this.#core = core;
    this.#options = options;
    this.#gate = new Gate(options.tokens, options.entry);
    this.#links = new Links(core, this.#gate, options.face, options);
    const { headersTimeoutMs = DEFAULT_HEADERS_MS } = options;
    this.#server = createServer(limits(headersTimeoutMs), (request, response) => void this.#answer(request, response));
    this.#server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on("clientError", (error, socket) => {
      if (socket.writable) socket.end(`HTTP/1.1 ${statusOf(error)}\r\nconnection: close\r\n\r\n`);
      else socket.destroy();
    });
    if (options.certificate !== undefined) sharePort(this.#server, options.certificate, headersTimeoutMs);
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
        this.#server.on("error", (error) => this.#options.log.error({ error: error.message }, "the main door failed"));
        resolve(this.#server.address() as AddressInfo);
      });
    });
  }

  close(): Promise<void> {
    this.#closing = true;
    this.#links.close();
    return new Promise((resolve) => {
      // A peer that does not say goodbye is not waited for.
      const patience = setTimeout(() => {
        this.#links.terminate();
        for (const socket of this.#connected) socket.destroy();
      }, GOODBYE_MS);
      this.#server.close(() => {
        clearTimeout(patience);
        resolve();
      });
      this.#server.closeAllConnections();
    });
  }

  /** Our own link names its subprotocol, fuq's has none. */
  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const plain = request.headers["sec-websocket-protocol"] === undefined;
    if (plain && request.url === LINK_PATH) {
      socket.on("error", () => socket.destroy());
      void this.#fuq().then((fuq) => fuq.upgrade(request, socket, head));
    } else this.#links.upgrade(request, socket, head);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url?.split("?", 1)[0] ?? "/";
    response.on("error", () => response.destroy());
    try {
      if (path === "/healthz" || path === "/readyz") this.#sayHow(path, response);
      else if (path === "/metrics") await this.#answerMetrics(request, response);
      else if (path.startsWith("/api/")) await this.#answerApi(request, response);
      else if (FUQ_PATH.test(path)) await (await this.#fuq()).answer(request, response, path);
      else await this.#answerPage(path, request, response);
    } catch (cause) {
      this.#options.log.error({ error: String(cause) }, "a request could not be answered");
      if (response.headersSent) response.destroy();
      else
        say(response, 500, { code: "LABORO_INTERNAL", message: "this could not be answered; the log has the reason" });
    }
  }

  #fuq(): Promise<FuqHttp> {
    this.#fuqHttp ??= this.#openFuq();
    return this.#fuqHttp;
  }

  async #openFuq(): Promise<FuqHttp> {
    const { FuqHttp } = await import("../protocols/fuq/http/index.js");
    const { face, log, complaints, conversations, doorSettings: settings } = this.#options;
    return new FuqHttp({ core: this.#core, gate: this.#gate, face, log, complaints, conversations, settings });
  }

  #sayHow(path: string, response: ServerResponse): void {
    const refusing = path === "/healthz" ? undefined : this.#closing ? "stopping" : this.#core.refusing?.code;
    response.writeHead(refusing === undefined ? 200 : 503, { "content-type": "text/plain" });
    response.end(`${refusing ?? "ok"}\n`);
  }

  async #answerMetrics(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const admitted = this.#gate.admit(request, true);
    if (isRefusal(admitted)) {
      await refuse(response, admitted);
      return;
    }
    const { Metrics } = await import("../api/metrics.js");
    this.#metrics ??= new Metrics(this.#core, this.#options.face);
    await this.#metrics.answer(response, admitted.role);
  }

  async #answerApi(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const admitted = this.#gate.admit(request, true);
    if (isRefusal(admitted)) {
      await refuse(response, admitted);
      return;
    }
    this.#api ??= (await import("../api/index.js")).createApi(this.#core, this.#options.face, this.#options.log);
    await this.#api(request, response, admitted.role);
  }

  async #answerPage(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const misplaced = this.#gate.refusalOfPlace(request);
    if (misplaced !== undefined) {
      await refuse(response, misplaced);
      return;
    }
    const { answerPage } = await import("../api/pages.js");
    const admitted = this.#gate.admit(request, true);
    if (isRefusal(admitted)) await admitted.after;
    await answerPage(request, response, path, {
      core: this.#core,
      face: this.#options.face,
      role: isRefusal(admitted) ? undefined : admitted.role,
      enter: (code) => this.#options.entry.exchange(code, isEncrypted(request)),
    });
  }
}

async function refuse(response: ServerResponse, { status, code, why, after }: Refusal): Promise<void> {
  await after;
  if (status === 401) response.setHeader("www-authenticate", 'Bearer realm="laboro"');
  say(response, status, { code, message: why });
}

function say(response: ServerResponse, status: number, error: Pick<LaboroError, "code" | "message">): void {
  const body = JSON.stringify({ error: { code: error.code, message: error.message } });
  // What of the request's body has not come yet is not wanted.
  response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store", connection: "close" });
  response.end(body);
}

function statusOf(error: NodeJS.ErrnoException): string {
  if (error.code === "HPE_HEADER_OVERFLOW") return "431 Request Header Fields Too Large";
  return error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "408 Request Timeout" : "400 Bad Request";
}
