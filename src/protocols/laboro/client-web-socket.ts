/**
 * The dialling end of an open WebSocket (RFC 6455), with the methods and events of `ws` that the link uses. `ws` loads
 * the HTTP, TLS and crypto modules of Node, which takes longer than the rest of a verb that asks a broker.
 *   open     "message" is emitted for each message
 *   closing  a close frame was sent or received: nothing is emitted until the connection has ended
 *   closed   "close" was emitted, once
 * The mask of every frame is 0, which leaves the bytes as they are. Masks protect proxies from the content that a web
 * page sends (RFC 6455, section 10.3). Here a program sends it, to its own machine or inside TLS.
 *
 * The opening handshake of a WebSocket (RFC 6455, section 4.1) from the side of a worker or client.
 */
import { EventEmitter } from "node:events";
import { connect, isIP, type Socket } from "node:net";
import { join } from "node:path";
import type { ConnectionOptions as TlsOptions } from "node:tls";
import { type ErrorCode, errnoOf, LaboroError } from "../../base/errors.js";
import { FRAME_LIMIT } from "./codec-fields.js";
import { SUBPROTOCOL } from "./messages.js";

/** A peer that does not end the connection is dropped after this time. */
const CLOSE_TIMEOUT = 5_000;
/** Frames up to this size are copied behind their head: a second write costs more than the copy. */
const COPIED = 16 * 1024;
const CONTROL_LIMIT = 125;
const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
const NOTHING = Buffer.alloc(0);
const NO_STATUS = 1005;
const NO_CLOSE_FRAME = 1006;

interface Frame {
  readonly fin: boolean;
  readonly opcode: number;
  readonly body: Buffer;
}

export class ClientWebSocket extends EventEmitter<{
  message: [Buffer, boolean];
  error: [Error];
  close: [number, Buffer];
}> {
  readonly #socket: Socket;
  readonly #maxPayload: number;
  #open = true;
  /** What has arrived of the next frame, and how many bytes it needs at least. */
  #chunks: Buffer[] = [];
  #received = 0;
  #needed = 2;
  /** The parts of a message that came in several frames. */
  #parts: Buffer[] = [];
  #partBytes = 0;
  #isBinary: boolean | undefined;
  #end: { readonly code: number; readonly reason: Buffer } = { code: NO_CLOSE_FRAME, reason: NOTHING };

  constructor(socket: Socket, maxPayload: number) {
    super();
    this.#socket = socket;
    this.#maxPayload = maxPayload;
    socket.on("data", (bytes) => this.#receive(bytes));
    socket.on("error", (error) => this.emit("error", error));
    socket.on("close", () => this.emit("close", this.#end.code, this.#end.reason));
  }

  get bufferedAmount(): number {
    return this.#socket.writableLength;
  }

  send(data: Uint8Array): void {
    if (this.#open) this.#write(OPCODE.binary, data);
  }

  close(code: number, reason: string): void {
    if (!this.#open) return;
    const body = Buffer.alloc(2 + Buffer.byteLength(reason));
    body.writeUInt16BE(code);
    body.write(reason, 2);
    this.#finish(body);
  }

  terminate(): void {
    this.#open = false;
    this.#socket.destroy();
  }

  /** Lets the process end before the peer has ended the connection. */
  unref(): void {
    this.#socket.unref();
  }

  #write(opcode: number, body: Uint8Array): void {
    const size = body.length;
    const extra = size < 126 ? 0 : size < 0x1_0000 ? 2 : 8;
    const head = 6 + extra;
    const copied = size <= COPIED;
    const frame = Buffer.allocUnsafe(copied ? head + size : head);
    frame[0] = 0x80 | opcode;
    frame[1] = 0x80 | (extra === 0 ? size : extra === 2 ? 126 : 127);
    if (extra === 2) frame.writeUInt16BE(size, 2);
    else if (extra === 8) frame.writeBigUInt64BE(BigInt(size), 2);
    frame.writeUInt32BE(0, 2 + extra);
    if (copied) {
      frame.set(body, head);
      this.#socket.write(frame);
      return;
    }
    this.#socket.cork();
    this.#socket.write(frame);
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Sends the close frame. The peer ends the connection. */
  #finish(body: Uint8Array): void {
    this.#open = false;
    this.#write(OPCODE.close, body);
    const socket = this.#socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT);
    timer.unref();
    socket.once("close", () => clearTimeout(timer));
  }

  #receive(bytes: Buffer): void {
    if (!this.#open) return;
    this.#chunks.push(bytes);
    this.#received += bytes.length;
    if (this.#received < this.#needed) return;
    let rest = this.#chunks.length === 1 ? bytes : Buffer.concat(this.#chunks, this.#received);
    try {
      for (;;) {
        this.#needed = frameSize(rest, this.#maxPayload);
        if (!this.#open || rest.length < this.#needed) break;
        const frame = rest.subarray(0, this.#needed);
        rest = rest.subarray(this.#needed);
        this.#take(parseFrame(frame));
      }
    } catch (cause) {
      // The owner answers with close().
      this.emit("error", cause as Error);
    }
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#received = rest.length;
  }

  #take({ fin, opcode, body }: Frame): void {
    switch (opcode) {
      case OPCODE.ping:
        this.#write(OPCODE.pong, body);
        return;
      case OPCODE.pong:
        return;
      case OPCODE.close:
        this.#end =
          body.length < 2
            ? { code: NO_STATUS, reason: NOTHING }
            : { code: body.readUInt16BE(), reason: body.subarray(2) };
        this.#finish(body.subarray(0, 2));
        return;
      default:
        this.#takePart(fin, opcode, body);
    }
  }

  #takePart(fin: boolean, opcode: number, body: Buffer): void {
    const isFirst = opcode !== OPCODE.continuation;
    if (isFirst !== (this.#isBinary === undefined)) throw violation(`an unexpected frame with opcode ${opcode}`);
    const isBinary = this.#isBinary ?? opcode === OPCODE.binary;
    if (fin && isFirst) {
      this.emit("message", body, isBinary);
      return;
    }
    this.#isBinary = isBinary;
    this.#parts.push(body);
    this.#partBytes += body.length;
    if (this.#partBytes > this.#maxPayload) throw tooLong(this.#partBytes, this.#maxPayload);
    if (!fin) return;
    const whole = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#partBytes = 0;
    this.#isBinary = undefined;
    this.emit("message", whole, isBinary);
  }
}

/** The bytes of the frame at the beginning, or as many as are needed to tell. Throws what `ws` throws. */
function frameSize(bytes: Buffer, maxPayload: number): number {
  const [first, second] = bytes;
  if (first === undefined || second === undefined) return 2;
  const opcode = first & 0x0f;
  if ((first & 0x70) !== 0) throw violation("reserved bits are set");
  if (opcode > OPCODE.pong || (opcode > OPCODE.binary && opcode < OPCODE.close)) throw violation(`opcode ${opcode}`);
  if ((second & 0x80) !== 0) throw violation("a frame of the server is masked");
  const short = second & 0x7f;
  if (opcode >= OPCODE.close && (short > CONTROL_LIMIT || first < 0x80)) throw violation("a control frame in parts");
  const head = headSize(short);
  if (bytes.length < head) return head;
  const size = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  if (size > maxPayload) throw tooLong(size, maxPayload);
  return head + size;
}

const headSize = (short: number): number => (short < 126 ? 2 : short === 126 ? 4 : 10);

function parseFrame(bytes: Buffer): Frame {
  const [first = 0, second = 0] = bytes;
  return { fin: (first & 0x80) !== 0, opcode: first & 0x0f, body: bytes.subarray(headSize(second)) };
}

const violation = (text: string): Error =>
  Object.assign(new RangeError(`invalid WebSocket frame: ${text}`), { code: "WS_ERR_INVALID_FRAME" });

const tooLong = (size: number, limit: number): Error =>
  Object.assign(new RangeError(`a message of ${size} bytes, expected at most ${limit}`), {
    code: "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH",
  });

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
  /** An error of the socket, or a LaboroError if the other end is not a broker or refuses. */
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
  /** After 101 the first bytes of the link, otherwise the received part of the body. */
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
  return new LaboroError("LABORO_BAD_CERTIFICATE", `the certificate of ${broker} is not valid: ${text}`, { cause });
}
