/** How a worker reaches its foreman: by a persistent connection, or by polling. */
import type { LaboroError } from "../../../base/errors.js";

export interface Transport {
  readonly joined: boolean;
  /** A task has ended. */
  sendUpdates(): void;
  /** No new tasks: what runs ends and is reported, then `onFinished` is called. */
  leave(): Promise<void>;
  /** Nothing is sent any more. */
  close(): void;
}

export interface TransportEvents {
  readonly onJoined: () => void;
  readonly onRefused: (error: LaboroError) => void;
  readonly onUnreachable: (error: LaboroError, times: number) => void;
  /** The worker is to end: all is done, or STOP(at once) came. */
  readonly onFinished: () => void;
}

/** One connection, by one version of the protocol. */
export interface ProtocolSession {
  start(): void;
  onMessage(bytes: Buffer): void;
  sendUpdates(): void;
  /** A worker that has nothing to do and will get nothing ends. */
  finishIfDone(): void;
  /** The connection is gone. */
  close(): void;
}

export interface ProtocolSessionEvents {
  readonly send: (bytes: Buffer) => void;
  /** The foreman has acknowledged the HELLO. */
  readonly onJoined: () => void;
  /** This connection is of no use any more; another may be. */
  readonly onBroken: (why: string) => void;
  readonly onFinished: () => void;
}
