/**
 * One link over one WebSocket, at either end: messages in, messages out.
 *
 *   open    frames are decoded and delivered, messages are sent
 *   closed  nothing is delivered or sent any more; onClose has been called, once
 *
 * It is closed by close(), by the peer, by the network, by a heartbeat that found the peer silent, by a frame that is not of this
 * link, by a handler that threw, or by a peer that does not read. The close handshake of the WebSocket may take a while longer. Messages
 * of one frame are delivered as one batch.
 */
import type { RawData, ServerOptions, WebSocket } from "ws";
import { asLaboroError, badMessage, errnoOf, LaboroError } from "../../base/errors.js";
import type { TracedConnection } from "../../base/traced-connections.js";
import { decodeFrame, type Sender, type SentBy } from "./codec.js";
import { isErrorCode } from "./codec-fields.js";
import { FRAME_LIMIT } from "./codec-limits.js";
import { describeMessage } from "./describe.js";
import { Heartbeat } from "./heartbeat.js";
import { type LinkMessage, SUBPROTOCOL } from "./messages.js";
import { Outbox } from "./outbox.js";

/** Bytes that may wait for a peer that reads slowly. */
export const BUFFER_LIMIT = 64 * 1024 * 1024;

/**
 * How the link uses `ws`, at both ends. Compression would cost more than the bytes it saves; a peer that does not answer the close frame
 * is dropped after a few seconds.
 */
export const SOCKET_OPTIONS = { perMessageDeflate: false, maxPayload: FRAME_LIMIT, closeTimeout: 5_000 } as const;

export const SERVER_OPTIONS = {
  ...SOCKET_OPTIONS,
  noServer: true,
  handleProtocols: (offered: Set<string>) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
} as const satisfies ServerOptions;

export interface CloseReason {
  readonly by: "us" | "peer" | "network";
  /** The WebSocket close code; 1006 where there was no close frame. */
  readonly code: number;
  readonly text: string;
  /** Set where a fault ended it, found here or named by the peer. */
  readonly error?: LaboroError;
}

export interface LinkHandler<In> {
  /** The messages of one frame of so many bytes. What it throws closes the connection with that reason. */
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
  /** Records the messages while somebody watches the connection. */
  readonly traced?: TracedConnection;
  readonly bufferLimit?: number;
  readonly frameLimit?: number;
}

export class Connection<In extends LinkMessage, Out extends LinkMessage> {
  readonly #socket: WebSocket;
  readonly #options: ConnectionOptions;
  readonly #outbox: Outbox;
  readonly #heartbeat: Heartbeat;
  #handler: LinkHandler<In>;
  #from: Sender;
  #open = true;
  #framesSent = 0;
  #framesReceived = 0;
  #fault: Error | undefined;

  constructor(socket: WebSocket, options: ConnectionOptions, handler: LinkHandler<In>) {
    this.#socket = socket;
    this.#options = options;
    this.#handler = handler;
    this.#from = options.from;
    this.#outbox = new Outbox((frame) => this.#transmit(frame));
    this.#heartbeat = new Heartbeat({
      sendBeat: () => this.#sendHeartbeat(),
      onTimeout: () => this.#terminate("nothing was heard for three heartbeats"),
      sent: () => this.#framesSent,
      received: () => options.transport?.bytesRead ?? this.#framesReceived,
    });
    socket.on("message", (data, isBinary) => this.#receive(data, isBinary));
    socket.on("error", (error) => this.#onSocketError(error));
    socket.on("close", (code, reason) => this.#ended(code, reason.toString()));
  }

  get isOpen(): boolean {
    return this.#open;
  }

  /** Bytes that were sent and have not left this process. A sender of much checks it before it sends more. */
  get bufferedBytes(): number {
    return this.#socket.bufferedAmount + this.#outbox.bytes;
  }

  /** Goes out with all else of this turn. Once closed, nothing happens. Throws LABORO_BAD_INPUT. */
  send(message: Out): void {
    if (!this.#open) return;
    const { traced } = this.#options;
    if (traced?.recording === true) traced.sent(() => describeMessage(message));
    this.#outbox.push(message);
  }

  /** From now on HEARTBEATs go and are expected. */
  startHeartbeat(intervalMs: number): void {
    if (this.#open) this.#heartbeat.start(intervalMs);
  }

  /** The same connection, for the session that takes over once the first message has said who calls. */
  handOver<NewIn extends In, NewOut extends Out>(handler: LinkHandler<NewIn>): Connection<NewIn, NewOut> {
    const taken = this as unknown as Connection<NewIn, NewOut>;
    taken.#handler = handler;
    return taken;
  }

  /** Sends what waits, then the close frame. */
  close(code = 1000, text = ""): void {
    this.#closeWith({ by: "us", code, text });
  }

  #transmit(frame: Uint8Array): void {
    const limit = this.#options.bufferLimit ?? BUFFER_LIMIT;
    const unread = this.#socket.bufferedAmount;
    if (unread > limit) {
      this.#terminate(`${unread} bytes wait for a peer that does not read, the limit is ${limit}`);
      return;
    }
    this.#framesSent++;
    this.#socket.send(frame);
  }

  #sendHeartbeat(): void {
    this.#options.traced?.sent(() => ({ name: "HEARTBEAT", fields: {} }));
    this.#outbox.push({ type: "HEARTBEAT" });
    this.#outbox.flush();
  }

  #receive(data: RawData, isBinary: boolean): void {
    if (!this.#open) return;
    this.#framesReceived++;
    let batch: readonly LinkMessage[];
    try {
      batch = this.#decode(data, isBinary);
    } catch (cause) {
      this.#fail(isBinary ? 1007 : 1003, asLaboroError(cause));
      return;
    }
    const { traced } = this.#options;
    if (traced?.recording === true) for (const one of batch) traced.received(() => describeMessage(one));
    try {
      this.#handler.onMessages(batch as readonly In[], (data as Uint8Array).length);
    } catch (cause) {
      const error = asLaboroError(cause);
      this.#fail(error.code === "LABORO_INTERNAL" ? 1011 : 1008, error);
    }
  }

  #decode(data: RawData, isBinary: boolean): SentBy[Sender][] {
    if (!isBinary || !(data instanceof Uint8Array)) {
      throw badMessage("a text frame, expected binary ones");
    }
    const batch = decodeFrame(data, this.#from, this.#options.frameLimit);
    if (this.#from === "caller") this.#from = batch[0]?.type === "JOIN" ? "worker" : "client";
    return batch;
  }

  #fail(code: number, error: LaboroError): void {
    const text = `${error.code}: ${error.message}`;
    this.#options.log?.warn({ from: this.#from, code: error.code }, `link closed: ${text}`);
    this.#closeWith({ by: "us", code, text, error });
  }

  #closeWith(reason: CloseReason): void {
    if (!this.#open) return;
    this.#outbox.flush();
    this.#socket.close(reason.code, cutToReason(reason.text));
    this.#finish(reason);
  }

  /** No close frame: it would wait behind what the peer does not read. */
  #terminate(text: string): void {
    this.#options.log?.warn({ from: this.#from }, `link given up: ${text}`);
    this.#socket.terminate();
    this.#finish({ by: "us", code: 1006, text });
  }

  /** The close event follows; where `ws` refused what came, it follows only after the peer's close frame. */
  #onSocketError(fault: Error): void {
    this.#fault = fault;
    const errno = errnoOf(fault);
    if (errno === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH") {
      this.#fail(1009, new LaboroError("LABORO_BODY_TOO_LARGE", fault.message, { cause: fault }));
    } else if (errno?.startsWith("WS_ERR_") === true) {
      this.#fail(1002, badMessage(fault.message, fault));
    }
  }

  #ended(code: number, text: string): void {
    if (code !== 1006) this.#finish({ by: "peer", code, text, ...errorNamedIn(text) });
    else this.#finish({ by: "network", code, text: this.#fault?.message ?? "the connection ended without a goodbye" });
  }

  #finish(reason: CloseReason): void {
    if (!this.#open) return;
    this.#open = false;
    this.#options.traced?.close();
    this.#heartbeat.stop();
    this.#outbox.clear();
    this.#handler.onClose(reason);
  }
}

/** The other end's #fail() puts the code first. */
function errorNamedIn(text: string): { readonly error?: LaboroError } {
  const [code = "", ...rest] = text.split(": ");
  return isErrorCode(code) ? { error: new LaboroError(code, rest.join(": ")) } : {};
}

/** The reason in a close frame has at most 123 bytes. */
function cutToReason(text: string): string {
  const bytes = Buffer.from(text);
  // What is cut in the middle of a character becomes U+FFFD, three bytes.
  return bytes.length <= 123
    ? text
    : bytes
        .subarray(0, 120)
        .toString()
        .replace(/\ufffd+$/u, "");
}
