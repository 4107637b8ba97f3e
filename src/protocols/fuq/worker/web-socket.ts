/** A foreman on its WebSocket, as the original program has it. */
import { WebSocket } from "ws";
import { errnoOf, LaboroError } from "../../../base/errors.js";
import { certificateError } from "../../laboro/dial-tls.js";
import { MESSAGE_LIMIT } from "../codec.js";
import { type ForemanUrl, tlsOptions } from "./foreman-url.js";
import type { ForemanHttp } from "./http-client.js";
import type { Connect, ForemanConnection, ForemanConnectionEvents } from "./transport.js";

/** As often as the original; two in a row without an answer end the connection. */
const PING_MS = 60_000;
const MISSED = 2;
const CLOSE_TIMEOUT_MS = 1_000;

/** Sends /hello first where there is no cookie yet. */
export const webSocketConnector =
  (foreman: ForemanUrl, http: ForemanHttp): Connect =>
  async (events, signal) => {
    const { name } = await http.hello(signal);
    const tls = await tlsOptions(foreman, signal);
    const url = new URL("node/persistent", foreman.url);
    url.protocol = foreman.url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, {
      ...tls,
      headers: { cookie: http.cookie },
      perMessageDeflate: false,
      maxPayload: MESSAGE_LIMIT,
    });
    const stop = (): void => socket.terminate();
    signal.addEventListener("abort", stop, { once: true });
    try {
      await waitForOpen(socket, foreman, http);
    } finally {
      signal.removeEventListener("abort", stop);
    }
    return connectionOf(socket, name, events);
  };

function waitForOpen(socket: WebSocket, foreman: ForemanUrl, http: ForemanHttp): Promise<void> {
  const { host } = foreman.url;
  const unreachable = (why: string, cause?: unknown): LaboroError =>
    new LaboroError("LABORO_BROKER_UNREACHABLE", `${host} cannot be reached: ${why}`, { cause });
  return new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.on("error", (cause) =>
      reject(certificateError(cause, host) ?? unreachable(cause.message || (errnoOf(cause) ?? "no connection"), cause)),
    );
    socket.once("unexpected-response", (request, response) => {
      const { statusCode = 0 } = response;
      // The foreman's memory is gone: the next try says /hello again.
      if (statusCode === 401 || statusCode === 403) http.forget();
      reject(unreachable(`it answered ${statusCode} to /node/persistent`));
      request.destroy();
    });
  });
}

function connectionOf(socket: WebSocket, name: string, events: ForemanConnectionEvents): ForemanConnection {
  let unanswered = 0;
  let pings = 0;
  const pingTimer = setInterval(() => {
    if (unanswered++ >= MISSED) socket.close(1001, "no answer to pings");
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
    if (isBinary) events.message(asBuffer(data));
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

function asBuffer(data: Buffer | ArrayBuffer | Buffer[]): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data);
  return Buffer.isBuffer(data) ? data : Buffer.from(data);
}
