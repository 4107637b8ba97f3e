/** What carries the messages of a Connection: a WebSocket between processes, memory within one process. */
import type { LaboroError } from "../../base/errors.js";
import type { LinkMessage } from "./messages.js";

export interface Transport {
  /** Bytes that were sent and have not been passed on. */
  readonly bufferedBytes: number;
  /** Goes out with all else of this turn. Throws LABORO_BAD_INPUT. */
  send(message: LinkMessage): void;
  startHeartbeat(intervalMs: number): void;
  /** Sends what waits, then the code and the text. Nothing is sent after that. */
  close(code: number, text: string): void;
  /** Drops what waits. The other end finds the connection gone. */
  terminate(): void;
  /** The connection is closed, by either end: frees what the transport holds. */
  release(): void;
}

/** What a transport reports. Nothing is reported from within a call of the transport's own methods. */
export interface TransportEvents {
  /** Messages that arrived together, in a frame of so many bytes. */
  onBatch(batch: readonly LinkMessage[], bytes: number): void;
  /** The peer broke the protocol: the connection is to be closed with this code. */
  onFault(code: number, error: LaboroError): void;
  /** The peer is silent or does not read: the connection is to be terminated. */
  onDead(text: string): void;
  /** The peer closed it. With 1006 there was no goodbye, and the text says what is known. */
  onEnded(code: number, text: string): void;
}
