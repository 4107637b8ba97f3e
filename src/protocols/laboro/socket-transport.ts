/** Messages over a WebSocket: frames, their limits, the heartbeat. */
import { asLaboroError, badMessage, errnoOf, LaboroError } from "../../base/errors.js";
import { decodeFrame, FrameBuilder, type Sender, type SentBy } from "./codec.js";
import { MESSAGES_LIMIT } from "./codec-fields.js";
import type { ConnectionOptions } from "./connection.js";
import type { Transport, TransportEvents } from "./memory-transport.js";
import type { LinkMessage } from "./messages.js";

/**
 * Collects the messages of one turn of the event loop into one frame. A frame stays below FRAME_TARGET, unless a single
 * message is larger, which is then sent alone.
 *
 * Messages become bytes when they are pushed: a bad message is refused to its sender, later changes to it have no
 * effect, and the number of waiting bytes is exact.
 */
export const FRAME_TARGET = 1024 * 1024;

type Schedule = (flush: () => void) => void;

export class Outbox {
  readonly #transmit: (frame: Uint8Array) => void;
  readonly #schedule: Schedule;
  readonly #endOfTurn = (): void => {
    this.#scheduled = false;
    this.flush();
  };
  readonly #makeRoom = (bytes: number): void => {
    const { bytes: waiting, count } = this.#frame;
    if (waiting + bytes > FRAME_TARGET || count === MESSAGES_LIMIT) this.flush();
  };
  readonly #frame = new FrameBuilder();
  #scheduled = false;

  constructor(transmit: (frame: Uint8Array) => void, schedule: Schedule = process.nextTick) {
    this.#transmit = transmit;
    this.#schedule = schedule;
  }

  /** Bytes that wait for the next frame. */
  get bytes(): number {
    return this.#frame.bytes;
  }

  push(message: LinkMessage): void {
    this.#frame.add(message, this.#makeRoom);
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#schedule(this.#endOfTurn);
  }

  flush(): void {
    if (this.#frame.count > 0) this.#transmit(this.#frame.take());
  }

  clear(): void {
    this.#frame.clear();
  }
}

/** The used part of a WebSocket: `ws` at the broker, ClientWebSocket at a worker or client. */
export interface WebSocketLike {
  readonly bufferedAmount: number;
  send(data: Uint8Array): void;
  close(code: number, reason: string): void;
  terminate(): void;
  on(event: "message", listener: (data: unknown, isBinary: boolean) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "close", listener: (code: number, reason: Buffer) => void): unknown;
}

/** Bytes that may wait for a peer that reads slowly. */
const BUFFER_LIMIT = 64 * 1024 * 1024;

export class SocketTransport implements Transport {
  readonly #socket: WebSocketLike;
  readonly #options: ConnectionOptions;
  readonly #events: TransportEvents;
  readonly #outbox = new Outbox((frame) => this.#transmit(frame));
  readonly #heartbeat: Heartbeat;
  #from: Sender;
  #framesSent = 0;
  #framesReceived = 0;
  #fault: Error | undefined;
  #released = false;

  constructor(socket: WebSocketLike, options: ConnectionOptions, events: TransportEvents) {
    this.#socket = socket;
    this.#options = options;
    this.#events = events;
    this.#from = options.from;
    this.#heartbeat = new Heartbeat({
      sendBeat: () => this.#sendHeartbeat(),
      onTimeout: () => events.onDead("nothing was heard for three heartbeats"),
      sent: () => this.#framesSent,
      received: () => options.transport?.bytesRead ?? this.#framesReceived,
    });
    socket.on("message", (data, isBinary) => this.#receive(data, isBinary));
    socket.on("error", (error) => this.#onSocketError(error));
    socket.on("close", (code, reason) => this.#onSocketClose(code, reason.toString()));
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount + this.#outbox.bytes;
  }

  send(message: LinkMessage): void {
    this.#outbox.push(message);
  }

  startHeartbeat(intervalMs: number): void {
    this.#heartbeat.start(intervalMs);
  }

  close(code: number, text: string): void {
    this.#outbox.flush();
    this.#socket.close(code, cutToReason(text));
  }

  /** No close frame: it would wait behind bytes that the peer does not read. */
  terminate(): void {
    this.#socket.terminate();
  }

  release(): void {
    this.#released = true;
    this.#heartbeat.stop();
    this.#outbox.clear();
  }

  #transmit(frame: Uint8Array): void {
    const limit = this.#options.bufferLimit ?? BUFFER_LIMIT;
    const unread = this.#socket.bufferedAmount;
    if (unread > limit) {
      this.#events.onDead(`${unread} bytes wait for a peer that does not read, the limit is ${limit}`);
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

  #receive(data: unknown, isBinary: boolean): void {
    if (this.#released) return;
    this.#framesReceived++;
    let batch: readonly LinkMessage[];
    try {
      batch = this.#decode(data, isBinary);
    } catch (cause) {
      this.#events.onFault(isBinary ? 1007 : 1003, asLaboroError(cause));
      return;
    }
    this.#events.onBatch(batch, (data as Uint8Array).length);
  }

  #decode(data: unknown, isBinary: boolean): SentBy[Sender][] {
    if (!isBinary || !(data instanceof Uint8Array)) {
      throw badMessage("a text frame, expected binary ones");
    }
    const batch = decodeFrame(data, this.#from, this.#options.frameLimit);
    if (this.#from === "caller") this.#from = batch[0]?.type === "JOIN" ? "worker" : "client";
    return batch;
  }

  /** The close event follows; where `ws` refused what came, it follows only after the peer's close frame. */
  #onSocketError(fault: Error): void {
    this.#fault = fault;
    const errno = errnoOf(fault);
    if (errno === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH") {
      this.#events.onFault(1009, new LaboroError("LABORO_BODY_TOO_LARGE", fault.message, { cause: fault }));
    } else if (errno?.startsWith("WS_ERR_") === true) {
      this.#events.onFault(1002, badMessage(fault.message, fault));
    }
  }

  #onSocketClose(code: number, text: string): void {
    this.#events.onEnded(code, code === 1006 ? (this.#fault?.message ?? "the connection ended without a close") : text);
  }
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

const MISSED_LIMIT = 3;
const TICKS = 2;

interface HeartbeatOptions {
  readonly sendBeat: () => void;
  readonly onTimeout: () => void;
  /** Counters of sent and received messages, HEARTBEATs included. */
  readonly sent: () => number;
  readonly received: () => number;
  readonly timers?: Timers;
}

interface Timers {
  /** Calls `tick` every `ms` until the function that it returns is called. */
  readonly every: (ms: number, tick: () => void) => () => void;
}

/**
 * Keeps a link alive: sends a HEARTBEAT when nothing else was sent for an interval, and calls `onTimeout` when nothing
 * was received for three.
 *
 * It counts its own ticks, two per interval, and never reads the clock: a process that was stopped or busy for a minute
 * finds one tick missed, not twenty, and does not give up a peer that was present all the time.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #cancel: (() => void) | undefined;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
  }

  start(intervalMs: number): void {
    this.stop();
    const { sendBeat, onTimeout, sent, received, timers = REAL_TIMERS } = this.#options;
    let sentBefore = sent();
    let receivedBefore = received();
    let silent = 0;
    this.#cancel = timers.every(intervalMs / TICKS, () => {
      silent = received() === receivedBefore ? silent + 1 : 0;
      receivedBefore = received();
      if (silent >= MISSED_LIMIT * TICKS) {
        this.stop();
        onTimeout();
        return;
      }
      const idle = sent() === sentBefore;
      sentBefore = sent();
      // The next tick sees the heartbeat itself as sent, so an idle link has one an interval.
      if (idle) sendBeat();
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}

const REAL_TIMERS: Timers = {
  every: (ms, tick) => {
    const timer = setInterval(tick, ms);
    return () => clearInterval(timer);
  },
};
