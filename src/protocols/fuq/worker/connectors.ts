/** Connections to a foreman: raw streams, and the WebSocket of the original program. */
import { connect, type Socket } from "node:net";
import { WebSocket } from "ws";
import { errnoOf, LaboroError } from "../../../base/errors.js";
import { certificateError } from "../../laboro/web-socket-handshake.js";
import { Framer, type Layout, MESSAGE_LIMIT } from "../codec.js";
import { type Address, type ForemanUrl, tlsOptions } from "./foreman-url.js";
import type { ForemanHttp } from "./http-client.js";

export interface ForemanConnection {
  send(bytes: Buffer): void;
  /** Closes gracefully if possible. No event follows. */
  close(): void;
}

/** Called from the event loop only. Nothing follows `closed`. */
interface ForemanConnectionEvents {
  message(bytes: Buffer): void;
  closed(why: string): void;
}

/** Makes one try. Rejects with LABORO_BROKER_UNREACHABLE, LABORO_BAD_TOKEN or LABORO_BAD_CERTIFICATE. */
export type Connect = (events: ForemanConnectionEvents, signal: AbortSignal) => Promise<ForemanConnection>;

const KEEP_ALIVE_MS = 30_000;
/** How long to wait for the foreman to close its side. */
const CLOSE_TIMEOUT_MS = 1_000;
/** As often as the original. Two in a row without a PONG end the connection. */
const PING_MS = 60_000;
const PINGS_MISSED = 2;

const unreachable = (place: string, why: string, cause?: unknown): LaboroError =>
  new LaboroError("LABORO_BROKER_UNREACHABLE", `${place} cannot be reached: ${why}`, { cause });

export const tcpConnector =
  ({ host, port }: Address, layout: Layout): Connect =>
  (events, signal) =>
    new Promise((resolve, reject) => {
      const socket: Socket = connect({ host, port, signal });
      const failed = (cause: Error): void => reject(unreachable(`${host}:${port}`, cause.message, cause));
      socket.once("error", failed);
      socket.once("connect", () => {
        socket.off("error", failed);
        socket.setNoDelay(true);
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
        let why = "it closed the connection";
        const framer = new Framer(layout, MESSAGE_LIMIT);
        socket.on("error", (cause) => {
          why = cause.message;
        });
        socket.on("data", (chunk) => {
          const { messages, failure } = framer.push(chunk);
          for (const message of messages) if (!socket.destroyed) events.message(message);
          if (failure === undefined) return;
          why = failure.message;
          socket.destroy();
        });
        socket.on("close", () => events.closed(why));
        resolve({
          send: (bytes) => void socket.write(bytes),
          close: () => {
            socket.end();
            setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS).unref();
          },
        });
      });
    });

/** Sends /hello first if there is no cookie yet. */
export const webSocketConnector =
  (foreman: ForemanUrl, http: ForemanHttp): Connect =>
  async (events, signal) => {
    const { name } = await http.hello(signal);
    const url = new URL("node/persistent", foreman.url);
    url.protocol = foreman.url.protocol === "https:" ? "wss:" : "ws:";
    const tls = await tlsOptions(foreman, signal);
    const headers = { cookie: http.cookie };
    const socket = new WebSocket(url, { ...tls, headers, perMessageDeflate: false, maxPayload: MESSAGE_LIMIT });
    const stop = (): void => socket.terminate();
    signal.addEventListener("abort", stop, { once: true });
    try {
      await waitForOpen(socket, url.host, http);
    } finally {
      signal.removeEventListener("abort", stop);
    }
    return connectionOf(socket, name, events);
  };

function waitForOpen(socket: WebSocket, host: string, http: ForemanHttp): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.on("error", (cause) => {
      const why = cause.message || (errnoOf(cause) ?? "no connection");
      reject(certificateError(cause, host) ?? unreachable(host, why, cause));
    });
    socket.once("unexpected-response", (request, { statusCode = 0 }) => {
      // The foreman does not know the cookie any more. The next try sends /hello again.
      if (statusCode === 401 || statusCode === 403) http.forget();
      reject(unreachable(host, `it answered ${statusCode} to /node/persistent`));
      request.destroy();
    });
  });
}

function connectionOf(socket: WebSocket, name: string, events: ForemanConnectionEvents): ForemanConnection {
  let unanswered = 0;
  let pings = 0;
  const pingTimer = setInterval(() => {
    if (unanswered++ >= PINGS_MISSED) socket.close(1001, "no answer to pings");
    else socket.ping(`PING:w2f_${name}:${++pings}`);
  }, PING_MS);
  const received = (): void => {
    unanswered = 0;
  };
  let why = "";
  socket.on("error", (cause) => {
    why = cause.message;
  });
  socket.on("pong", received);
  socket.on("ping", received);
  socket.on("message", (data, isBinary) => {
    received();
    if (isBinary) events.message(data as Buffer);
    else socket.close(1003, "binary messages only");
  });
  socket.on("close", (code, reason) => {
    clearInterval(pingTimer);
    events.closed(why || `${code} ${reason.toString()}`.trim());
  });
  return {
    send: (bytes) => socket.send(bytes),
    close: () => {
      socket.close(1000, "closing");
      setTimeout(() => socket.terminate(), CLOSE_TIMEOUT_MS).unref();
    },
  };
}
