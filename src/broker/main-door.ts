/** The main door: HTTP on one port, and on it the WebSocket of our own link. */
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { LaboroError } from "../model/errors.js";
import { ClientSession } from "../protocols/laboro/broker-client.js";
import { WorkerSession, type WorkerSessionOptions } from "../protocols/laboro/broker-worker.js";
import { type CloseReason, Connection, SERVER_OPTIONS } from "../protocols/laboro/connection.js";
import {
  type FromClient,
  type FromWorker,
  LINK_VERSION,
  SUBPROTOCOL,
  type ToClient,
  type ToWorker,
} from "../protocols/laboro/messages.js";
import { tokenMatches } from "./access.js";
import type { Core } from "./core.js";
import type { Log } from "./log.js";
import { Operations } from "./operations.js";

const LINK_PATH = "/node/persistent";
/** Who opens a link says who it is within this time. */
const FIRST_WORD_MS = 10_000;

type Caller = Connection<FromWorker | FromClient, ToWorker | ToClient>;

export interface DoorOptions extends WorkerSessionOptions {
  readonly token: string;
  readonly log: Log;
}

export class MainDoor {
  readonly #core: Core;
  readonly #operations: Operations;
  readonly #options: DoorOptions;
  readonly #server: Server;
  readonly #links = new WebSocketServer(SERVER_OPTIONS);
  readonly #open = new Set<Caller>();

  constructor(core: Core, options: DoorOptions) {
    this.#core = core;
    this.#operations = new Operations(core);
    this.#options = options;
    this.#server = createServer((request, response) => {
      const found = request.url === "/healthz";
      response.writeHead(found ? 200 : 404, { "content-type": "text/plain" });
      response.end(found ? "ok\n" : "not found\n");
    });
    this.#server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on("clientError", (_error, socket) => socket.destroy());
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
    for (const connection of this.#open) connection.close(1001, "the broker is stopping");
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
      // A peer that does not say goodbye is not waited for.
      setTimeout(() => {
        for (const socket of this.#links.clients) socket.terminate();
      }, 200);
    });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    const refusal = this.#refusal(request);
    if (refusal !== undefined) {
      refuse(socket, refusal);
      return;
    }
    this.#links.handleUpgrade(request, socket, head, (webSocket) => {
      const { log } = this.#options;
      const transport = request.socket as Socket;
      transport.setNoDelay(true);
      const silent = setTimeout(
        () => connection.close(1008, "LABORO_BAD_MESSAGE: neither JOIN nor HELLO came"),
        FIRST_WORD_MS,
      );
      const connection: Caller = new Connection(
        webSocket,
        { from: "caller", transport, log },
        {
          onMessages: (batch) => {
            clearTimeout(silent);
            this.#firstFrame(connection, batch);
          },
          onClose: () => {
            clearTimeout(silent);
            this.#open.delete(connection);
          },
        },
      );
      this.#open.add(connection);
    });
  }

  #refusal(request: IncomingMessage): Refusal | undefined {
    if (request.url !== LINK_PATH) return { status: "404 Not Found", why: "there is nothing here" };
    const offered = request.headers["sec-websocket-protocol"]?.split(",").map((name) => name.trim()) ?? [];
    if (!offered.includes(SUBPROTOCOL))
      return { status: "426 Upgrade Required", why: `this door speaks ${SUBPROTOCOL}` };
    const [scheme, given] = request.headers.authorization?.split(" ") ?? [];
    if (scheme === "Bearer" && tokenMatches(this.#options.token, given)) return undefined;
    return { status: "401 Unauthorized", why: "the token is not known here" };
  }

  /** The first message says who calls; the session takes the connection from there. */
  #firstFrame(connection: Caller, batch: readonly (FromWorker | FromClient)[]): void {
    const [first, ...rest] = batch;
    if (first?.type === "JOIN") {
      const link = connection.handOver<FromWorker, ToWorker>(this.#listener(connection, () => session));
      const session = new WorkerSession(this.#core, link, first, this.#options);
      session.onMessages(rest as FromWorker[]);
    } else if (first?.type === "HELLO") {
      const { broker, heartbeatMs } = this.#options;
      const link = connection.handOver<FromClient, ToClient>(this.#listener(connection, () => session));
      const session = new ClientSession(this.#core, this.#operations, link);
      if (first.version !== LINK_VERSION) {
        throw new LaboroError(
          "LABORO_VERSION",
          `the client speaks link version ${first.version}, this broker ${LINK_VERSION}`,
        );
      }
      link.send({ type: "GREET", version: LINK_VERSION, broker, heartbeatMs });
      link.startHeartbeat(heartbeatMs);
      session.onMessages(rest as FromClient[]);
    } else {
      throw new LaboroError("LABORO_BAD_MESSAGE", `${first?.type ?? "nothing"} came first, expected JOIN or HELLO`);
    }
  }

  #listener<In>(
    connection: Caller,
    session: () => { onMessages(batch: readonly In[]): void; onClose(reason: CloseReason): void },
  ): { onMessages: (batch: readonly In[]) => void; onClose: (reason: CloseReason) => void } {
    return {
      onMessages: (batch) => session().onMessages(batch),
      onClose: (reason) => {
        this.#open.delete(connection);
        session().onClose(reason);
      },
    };
  }
}

interface Refusal {
  readonly status: string;
  readonly why: string;
}

function refuse(socket: Duplex, { status, why }: Refusal): void {
  const body = `${why}\n`;
  const length = Buffer.byteLength(body);
  const head = `HTTP/1.1 ${status}\r\ncontent-type: text/plain\r\ncontent-length: ${length}\r\nconnection: close\r\n\r\n`;
  socket.end(head + body);
}
