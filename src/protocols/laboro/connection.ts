/**
 * One link, at either end: messages in, messages out, over a transport: a WebSocket, or memory if both ends are in one
 * process.
 *
 *   open    messages are delivered and sent
 *   closed  nothing is delivered or sent; onClose was called, once
 *
 * It is closed by close(), by the peer, by the network, by missing heartbeats, by an invalid frame, by a handler that
 * throws, or by a peer that does not read. The close handshake of a WebSocket may take longer. Messages of one frame
 * are delivered as one batch.
 */
import { isUtf8 } from "node:buffer";
import type { ServerOptions } from "ws";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { TracedConnection, TracedMessage } from "../../base/traced-connections.js";
import type { Sender } from "./codec.js";
import { FRAME_LIMIT, isErrorCode } from "./codec-fields.js";
import { MemorySocket, type Transport, type TransportEvents } from "./memory-transport.js";
import { type LinkMessage, SUBPROTOCOL } from "./messages.js";
import { SocketTransport, type WebSocketLike } from "./socket-transport.js";

/**
 * The broker's options of `ws`. Compression would cost more than the bytes it saves. A peer that does not answer the
 * close frame is dropped after a few seconds.
 */
export const SERVER_OPTIONS = {
  ...{ perMessageDeflate: false, maxPayload: FRAME_LIMIT, closeTimeout: 5_000 },
  noServer: true,
  handleProtocols: (offered: Set<string>) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
} as const satisfies ServerOptions;

export interface CloseReason {
  readonly by: "us" | "peer" | "network";
  /** The WebSocket close code; 1006 if there was no close frame. */
  readonly code: number;
  readonly text: string;
  /** Set where a fault ended it, found here or named by the peer. */
  readonly error?: LaboroError;
}

export interface LinkHandler<In> {
  /** The messages of one frame, and its size. An exception closes the connection with its reason. */
  readonly onMessages: (batch: readonly In[], bytes: number) => void;
  /** Called once, after close() too. */
  readonly onClose: (reason: CloseReason) => void;
}

export interface LinkLog {
  readonly warn: (fields: object, text: string) => void;
}

export interface ConnectionOptions {
  /** Who is at the other end. A caller becomes a worker or a client by its first frame. */
  readonly from: Sender;
  /** The socket under the WebSocket: bytes of a frame that is still arriving count as received too. */
  readonly transport?: { readonly bytesRead: number };
  readonly log?: LinkLog;
  /** Records the messages while an operator watches the connection. */
  readonly traced?: TracedConnection;
  readonly bufferLimit?: number;
  readonly frameLimit?: number;
}

export class Connection<In extends LinkMessage, Out extends LinkMessage> {
  readonly #transport: Transport;
  readonly #options: ConnectionOptions;
  #handler: LinkHandler<In>;
  #open = true;

  constructor(socket: WebSocketLike | MemorySocket, options: ConnectionOptions, handler: LinkHandler<In>) {
    this.#options = options;
    this.#handler = handler;
    const events: TransportEvents = {
      onBatch: (batch, bytes) => this.#receive(batch, bytes),
      onFault: (code, error) => this.#fail(code, error),
      onDead: (text) => this.#terminate(text),
      onEnded: (code, text) =>
        this.#finish(code === 1006 ? { by: "network", code, text } : { by: "peer", code, text, ...errorNamedIn(text) }),
    };
    this.#transport =
      socket instanceof MemorySocket ? socket.open(events) : new SocketTransport(socket, options, events);
  }

  get isOpen(): boolean {
    return this.#open;
  }

  /** Bytes that were sent and are still in this process. A large sender checks it before it sends more. */
  get bufferedBytes(): number {
    return this.#transport.bufferedBytes;
  }

  /** Sends the message with the others of this turn. Once closed, nothing happens. Throws LABORO_BAD_INPUT. */
  send(message: Out): void {
    if (!this.#open) return;
    const { traced } = this.#options;
    if (traced?.recording === true) traced.sent(() => describeMessage(message));
    this.#transport.send(message);
  }

  /** From now on HEARTBEATs are sent and expected. */
  startHeartbeat(intervalMs: number): void {
    if (this.#open) this.#transport.startHeartbeat(intervalMs);
  }

  /** The same connection, for the session that takes over after the first message. */
  handOver<NewIn extends In, NewOut extends Out>(handler: LinkHandler<NewIn>): Connection<NewIn, NewOut> {
    const taken = this as unknown as Connection<NewIn, NewOut>;
    taken.#handler = handler;
    return taken;
  }

  /** Sends what waits, then the reason. */
  close(code = 1000, text = ""): void {
    this.#closeWith({ by: "us", code, text });
  }

  #receive(batch: readonly LinkMessage[], bytes: number): void {
    if (!this.#open) return;
    const { traced } = this.#options;
    if (traced?.recording === true) for (const one of batch) traced.received(() => describeMessage(one));
    try {
      this.#handler.onMessages(batch as readonly In[], bytes);
    } catch (cause) {
      const error = asLaboroError(cause);
      this.#fail(error.code === "LABORO_INTERNAL" ? 1011 : 1008, error);
    }
  }

  #fail(code: number, error: LaboroError): void {
    if (!this.#open) return;
    const text = `${error.code}: ${error.message}`;
    this.#options.log?.warn({ from: this.#options.from, code: error.code }, `link closed: ${text}`);
    this.#closeWith({ by: "us", code, text, error });
  }

  #closeWith(reason: CloseReason): void {
    if (!this.#open) return;
    this.#transport.close(reason.code, reason.text);
    this.#finish(reason);
  }

  #terminate(text: string): void {
    if (!this.#open) return;
    this.#options.log?.warn({ from: this.#options.from }, `link given up: ${text}`);
    this.#transport.terminate();
    this.#finish({ by: "us", code: 1006, text });
  }

  #finish(reason: CloseReason): void {
    if (!this.#open) return;
    this.#open = false;
    this.#options.traced?.close();
    this.#transport.release();
    this.#handler.onClose(reason);
  }
}

/** The other end's #fail() puts the code first. */
function errorNamedIn(text: string): { readonly error?: LaboroError } {
  const [code = "", ...rest] = text.split(": ");
  return isErrorCode(code) ? { error: new LaboroError(code, rest.join(": ")) } : {};
}

const MAX_TEXT = 200;
const MAX_ITEMS = 20;
const DEEPEST = 5;

/** A message of the link in readable form: UTF-8 bytes as text, long values cut. */
function describeMessage({ type, ...fields }: LinkMessage): TracedMessage {
  const shown = "secret" in fields ? { ...fields, secret: "(hidden)" } : fields;
  return { name: type, fields: readable(shown, 0) as TracedMessage["fields"] };
}

function readable(value: unknown, depth: number): unknown {
  if (typeof value === "string") return cut(value);
  if (typeof value === "number") return Math.round(value * 1000) / 1000;
  if (value instanceof Uint8Array) return bytes(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth >= DEEPEST) return "…";
  if (Array.isArray(value)) {
    const shown = value.slice(0, MAX_ITEMS).map((one) => readable(one, depth + 1));
    return value.length > MAX_ITEMS ? [...shown, `… ${value.length - MAX_ITEMS} more`] : shown;
  }
  const members = Object.entries(value).slice(0, MAX_ITEMS);
  return Object.fromEntries(members.map(([name, one]) => [name, readable(one, depth + 1)]));
}

function bytes(value: Uint8Array): string {
  const start = Buffer.from(value.buffer, value.byteOffset, Math.min(value.length, MAX_TEXT));
  const text = isUtf8(start) ? start.toString() : start.toString("hex");
  return value.length > MAX_TEXT ? `${text}… (${value.length} bytes)` : text;
}

const cut = (text: string): string =>
  text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length} characters)` : text;
