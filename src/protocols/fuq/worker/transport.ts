/** How a worker and its foreman are in touch: a connection that stays, or questions one by one. */
import type { LaboroError } from "../../../base/errors.js";

export interface Transport {
  readonly joined: boolean;
  /** A task has ended. */
  sendUpdates(): void;
  /** Nothing new is wanted: what runs ends and is told of, then `onOver` is called. */
  leave(): Promise<void>;
  /** Nothing is said any more. */
  close(): void;
}

export interface TransportEvents {
  readonly onJoined: () => void;
  readonly onRefused: (error: LaboroError) => void;
  readonly onUnreachable: (error: LaboroError, times: number) => void;
  /** The worker is to end: all is done, or it was told to at once. */
  readonly onFinished: () => void;
}

/** Speaks on one connection, by one version of the protocol. */
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
  /** The foreman has heard who is here and what it has. */
  readonly onJoined: () => void;
  /** This connection is of no use any more; another may be. */
  readonly onBroken: (why: string) => void;
  readonly onFinished: () => void;
}
