/** The opening handshake of a WebSocket (RFC 6455, section 4.1) from the side of a worker or client. */
import { connect, isIP, type Socket } from "node:net";
import { join } from "node:path";
import type { ConnectionOptions as TlsOptions } from "node:tls";
import { type ErrorCode, errnoOf, LaboroError } from "../../base/errors.js";
import { ClientWebSocket } from "./client-web-socket.js";
import { FRAME_LIMIT } from "./codec-fields.js";
import { SUBPROTOCOL } from "./messages.js";

/**
 * Always the same key, with the answer that belongs to it. A random key protects against proxies that answer from a
 * cache, and there is none on one machine or inside TLS. So the crypto module is not loaded.
 */
const KEY = "bGFib3JvJ3Mgb3duIGxpbg==";
const ACCEPT = "KAYyp/PCPlQk0FZxW8uyRSJqHwo=";
const HEAD_LIMIT = 16 * 1024;
const BODY_LIMIT = 2048;

interface HandshakeEvents {
  /** As soon as there is a socket: destroying it ends the attempt. */
  readonly onSocket: (socket: Socket) => void;
  /** Messages are emitted from the next turn on. */
  readonly onOpen: (opened: ClientWebSocket, socket: Socket) => void;
  /** An error of the socket, or a LaboroError where something answers that is no broker, or one that refuses. */
  readonly onFailed: (cause: unknown) => void;
}

/** `tls` for a URL with TLS. With `tunnels` through the socket for this URL in that directory. */
export async function openWebSocket(
  url: URL,
  token: string | undefined,
  tls: TlsOptions | undefined,
  events: HandshakeEvents,
  tunnels?: string,
): Promise<void> {
  const request = requestText(url, token);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const servername = isIP(host) === 0 ? host : "";
  const isSecure = /^(https|wss):$/.test(url.protocol);
  const port = Number(url.port || (isSecure ? 443 : 80));
  const place = tunnels === undefined ? { host, port } : { path: tunnelSocket(tunnels, url) };
  const socket = isSecure ? (await import("node:tls")).connect({ ...place, servername, ...tls }) : connect(place);
  socket.setNoDelay(true);
  socket.once(isSecure ? "secureConnect" : "connect", () => socket.write(request, "latin1"));
  readAnswer(socket, url.origin, events);
  events.onSocket(socket);
}

/** In a directory of tunnels: the Unix socket that leads to the broker at this URL. */
export const tunnelSocket = (tunnels: string, url: URL): string =>
  join(tunnels, `${url.host.replace(/[^\w.-]/g, "_")}.sock`);

function requestText(url: URL, token = ""): string {
  if (/[^\x21-\x7e]/.test(token))
    throw new LaboroError("LABORO_BAD_TOKEN", "the token has characters that no token has");
  const lines = [
    `GET ${url.pathname}${url.search} HTTP/1.1`,
    `Host: ${url.host}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Key: ${KEY}`,
    `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`,
    ...(token === "" ? [] : [`Authorization: Bearer ${token}`]),
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}

function readAnswer(socket: Socket, broker: string, { onOpen, onFailed }: HandshakeEvents): void {
  let received = Buffer.alloc(0);
  const settle = (then: () => void): void => {
    socket.off("data", onData).off("close", onClose);
    then();
  };
  const read = (isAll: boolean): void => {
    try {
      const answer = parseAnswer(received, isAll);
      if (answer === undefined) return;
      checkAnswer(answer, broker);
      settle(() => {
        socket.off("error", onFailed);
        socket.pause();
        if (answer.rest.length > 0) socket.unshift(answer.rest);
        onOpen(new ClientWebSocket(socket, FRAME_LIMIT), socket);
        socket.resume();
      });
    } catch (cause) {
      settle(() => onFailed(cause));
    }
  };
  const onData = (bytes: Buffer): void => {
    received = Buffer.concat([received, bytes]);
    read(false);
  };
  const onClose = (): void => read(true);
  socket.on("data", onData).on("close", onClose).on("error", onFailed);
}

interface Answer {
  readonly status: number;
  /** By names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  /** Of 101 the first bytes of the link, else the body, as far as it came. */
  readonly rest: Buffer;
}

/** Undefined while more is to come. */
function parseAnswer(bytes: Buffer, isAll: boolean): Answer | undefined {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) {
    if (isAll) throw new Error("the connection ended before an answer came");
    if (bytes.length > HEAD_LIMIT) throw new Error("it does not speak HTTP");
    return undefined;
  }
  const [first = "", ...lines] = bytes.toString("latin1", 0, end).split("\r\n");
  const status = Number(/^HTTP\/1\.1 (\d{3})\b/.exec(first)?.[1]);
  if (Number.isNaN(status)) throw new Error("it does not speak HTTP");
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  const rest = bytes.subarray(end + 4);
  const length = Math.min(BODY_LIMIT, Number(headers.get("content-length") ?? BODY_LIMIT));
  return status === 101 || isAll || rest.length >= length ? { status, headers, rest } : undefined;
}

function checkAnswer({ status, headers, rest }: Answer, broker: string): void {
  if (status !== 101) throw refusalOf(status, rest.toString("utf8", 0, BODY_LIMIT), broker);
  if (headers.get("sec-websocket-protocol") !== SUBPROTOCOL)
    throw new LaboroError("LABORO_VERSION", `${broker} does not speak ${SUBPROTOCOL}`);
  if (headers.get("sec-websocket-accept") !== ACCEPT) throw new Error("it does not speak WebSocket");
}

const CODES: Readonly<Record<number, ErrorCode>> = {
  401: "LABORO_BAD_TOKEN",
  403: "LABORO_FORBIDDEN",
  426: "LABORO_VERSION",
};

/** A broker that closes a link with one of these will do so again. */
export const isRefusal = (error: LaboroError): boolean => Object.values(CODES).includes(error.code);

/** Any other status is one of a broker that may yet come: LABORO_BROKER_UNREACHABLE. */
function refusalOf(status: number, body: string, broker: string): LaboroError {
  const why = body.split("\n", 1)[0]?.trim() ?? "";
  const text = `${broker} answered ${status}${why === "" ? "" : `: ${why}`}`;
  return new LaboroError(CODES[status] ?? "LABORO_BROKER_UNREACHABLE", text);
}

/** A failed check of a certificate as an error with its code; undefined for any other failure. */
export function certificateError(cause: unknown, broker: string): LaboroError | undefined {
  if (cause instanceof LaboroError) return undefined;
  const errno = errnoOf(cause) ?? "";
  if (!/CERT|SIGNATURE|INVALID_CA|ISSUER/.test(errno)) return undefined;
  const text = cause instanceof Error ? cause.message : errno;
  return new LaboroError("LABORO_BAD_CERTIFICATE", `the certificate of ${broker} does not hold: ${text}`, { cause });
}
