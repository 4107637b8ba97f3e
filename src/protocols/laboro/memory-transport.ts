/**
 * Messages within one process: handed over as they are, without a socket and without bytes. Messages that are sent
 * together arrive as one batch, never from within the call that sent them. An open pair keeps the process running, as a
 * socket does. Free values of SDK callers are checked and copied when they are sent, as on a socket: the input of an
 * OPERATION, the bodies of REQUEST and REPLY. All other messages are laboro's own, and neither end changes them
 * afterwards.
 *
 * The interface of transports for a Connection: a WebSocket between processes, memory within one process.
 */
import type { LaboroError } from "../../base/errors.js";
import { decodeFrame, encodeFrame, readBack } from "./codec.js";
import type { LinkMessage } from "./messages.js";

export interface Transport {
  /** Bytes that were sent and are still in this process. */
  readonly bufferedBytes: number;
  /** Sends the message with the others of this turn. Throws LABORO_BAD_INPUT. */
  send(message: LinkMessage): void;
  startHeartbeat(intervalMs: number): void;
  /** Sends what waits, then the code and the text. Nothing is sent after that. */
  close(code: number, text: string): void;
  /** Drops what waits. The other end finds the connection gone. */
  terminate(): void;
  /** Either end has closed the connection: frees the resources of the transport. */
  release(): void;
}

/** What a transport reports. Nothing is reported from within a call of the transport's own methods. */
export interface TransportEvents {
  /** Messages that arrived together, and the size of their frame. */
  onBatch(batch: readonly LinkMessage[], bytes: number): void;
  /** The peer broke the protocol: the connection is to be closed with this code. */
  onFault(code: number, error: LaboroError): void;
  /** The peer is silent or does not read: the connection is to be terminated. */
  onDead(text: string): void;
  /** The peer closed it. With 1006 there was no close frame, and the text says what is known. */
  onEnded(code: number, text: string): void;
}

/** The largest delay of a timer; it only keeps the process running. */
const NEVER_MS = 2 ** 31 - 1;
/** In one turn of the event loop. */
const MAX_DELIVERIES = 16;
/** The size that is counted for a message without bytes. */
const MESSAGE_BYTES = 64;

let deliveries = 0;

/** After the caller has returned; after many deliveries in one turn, in the next turn, so that others run too. */
function deferDelivery(deliver: () => void): void {
  if (deliveries === 0) setImmediate(() => (deliveries = 0));
  if (++deliveries <= MAX_DELIVERIES) process.nextTick(deliver);
  else setImmediate(deliver);
}

/** Both ends of a link. Each gets a Connection. */
export function memoryPair(): [MemorySocket, MemorySocket] {
  const [near, far] = [new MemorySocket(), new MemorySocket()];
  near.connectTo(far);
  far.connectTo(near);
  return [near, far];
}

export class MemorySocket implements Transport {
  #peer: MemorySocket | undefined;
  #events: TransportEvents | undefined;
  #waiting: LinkMessage[] = [];
  #bytes = 0;
  #closing: { readonly code: number; readonly text: string } | undefined;
  #scheduled = false;
  readonly #deliverWaiting = (): void => this.#deliver();
  #keepRunning: NodeJS.Timeout | undefined;

  connectTo(peer: MemorySocket): void {
    this.#peer = peer;
  }

  /** From now on messages are delivered. */
  open(events: TransportEvents): this {
    this.#events = events;
    this.#keepRunning = setInterval(() => {}, NEVER_MS);
    return this;
  }

  get bufferedBytes(): number {
    return this.#bytes;
  }

  send(message: LinkMessage): void {
    const [own, bytes] = owned(message);
    this.#waiting.push(own);
    this.#bytes += bytes;
    this.#schedule();
  }

  /** A peer in the same process needs no heartbeat. */
  startHeartbeat(): void {}

  close(code: number, text: string): void {
    this.#closing ??= { code, text };
    this.#schedule();
  }

  terminate(): void {
    this.#waiting = [];
    this.#bytes = 0;
    this.close(1006, "the connection ended without a close");
  }

  release(): void {
    clearInterval(this.#keepRunning);
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    deferDelivery(this.#deliverWaiting);
  }

  #deliver(): void {
    this.#scheduled = false;
    const [batch, bytes] = [this.#waiting, this.#bytes];
    this.#waiting = [];
    this.#bytes = 0;
    const to = this.#peer === undefined ? undefined : this.#peer.#events;
    if (batch.length > 0) to?.onBatch(batch, bytes);
    if (this.#closing !== undefined) to?.onEnded(this.#closing.code, this.#closing.text);
  }
}

/** The message as it is handed over, and about how many bytes it holds. Throws LABORO_BAD_INPUT. */
function owned(message: LinkMessage): [LinkMessage, number] {
  switch (message.type) {
    case "OPERATION": {
      const frame = encodeFrame([message]);
      const [read = message] = decodeFrame(frame, "client");
      return [read, frame.length];
    }
    case "REQUEST":
    case "REPLY": {
      const read = readBack(message);
      return [{ ...read, body: Buffer.from(read.body) }, MESSAGE_BYTES + read.body.length];
    }
    case "OUTPUT":
      // A view of the worker's buffer, which is used again before the broker has stored it.
      return [{ ...message, bytes: Buffer.from(message.bytes) }, MESSAGE_BYTES + message.bytes.length];
    case "RELAY":
      return [message, MESSAGE_BYTES + message.bytes.length];
    default:
      return [message, MESSAGE_BYTES];
  }
}
