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
  /** The foreman refuses this worker. Nothing more is tried. */
  readonly onRefused: (error: LaboroError) => void;
  /** It cannot be reached, for the n-th time in a row. */
  readonly onUnreachable: (error: LaboroError, times: number) => void;
  /** The worker is to end: all is done, or STOP(at once) came. */
  readonly onFinished: () => void;
}

/** Between two tries to reach the foreman: doubles with each that fails. */
export const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 60_000;

export const retryDelay = (firstMs = FIRST_DELAY_MS, failures: number): number =>
  Math.min(MAX_DELAY_MS, firstMs * 2 ** Math.min(failures, 20));

/** A certificate that did and now does not hold is something passing; at the first try it is the name of the foreman that is wrong. */
export const isFinal = ({ code }: LaboroError, everJoined: boolean): boolean =>
  code === "LABORO_BAD_TOKEN" || (code === "LABORO_BAD_CERTIFICATE" && !everJoined);

/** A persistent connection that is open. */
export interface ForemanConnection {
  send(bytes: Buffer): void;
  /** Closes in order, where the transport can. Nothing follows. */
  close(): void;
}

/** Called from the event loop only, and not after `closed`. */
export interface ForemanConnectionEvents {
  message(bytes: Buffer): void;
  closed(why: string): void;
}

/** Makes one try. Rejects where there is no connection: LABORO_BAD_TOKEN and LABORO_BAD_CERTIFICATE will not change by themselves. */
export type Connect = (events: ForemanConnectionEvents, signal: AbortSignal) => Promise<ForemanConnection>;

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
