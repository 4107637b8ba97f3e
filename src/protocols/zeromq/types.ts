/** The ZeroMQ sockets that laboro uses. */
import type { ListenerGuard } from "../../base/connection-guard.js";
import type { ErrorCode } from "../../base/errors.js";

export interface Limits {
  /** Of one message. A message with more is dropped. */
  readonly frames: number;
  /**
   * Of one message. One with more is dropped. A peer that sends 16 times as many, or with CURVE a frame of more than
   * this, is disconnected.
   */
  readonly messageBytes: number;
  /** Queued for one peer. Further messages are dropped. */
  readonly queueBytes: number;
  /** Queued for all peers, and of incomplete messages from them. Above it the peer with the most is disconnected. */
  readonly bufferedBytesInAll: number;
  readonly peers: number;
}

export const DEFAULT_LIMITS: Limits = {
  frames: 10_000,
  messageBytes: 64 * 1024 * 1024,
  queueBytes: 64 * 1024 * 1024,
  bufferedBytesInAll: 256 * 1024 * 1024,
  peers: 20_000,
};

/** A peer that answers PING is disconnected after three of these without a byte from it. */
export const DEFAULT_HEARTBEAT_MS = 5_000;

/** Keys as ZeroMQ writes them: 40 characters of Z85. */
export interface CurveServer {
  readonly publicKey: string;
  readonly secretKey: string;
  /** Public keys of the clients that may connect. */
  readonly known: readonly string[];
}

export interface CurveClient {
  readonly publicKey: string;
  readonly secretKey: string;
  readonly serverKey: string;
}

export interface BindOptions {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  readonly curve?: CurveServer | undefined;
  readonly limits?: Partial<Limits>;
  readonly heartbeatMs?: number;
  /** Limits the connections. */
  readonly guard?: ListenerGuard;
  /** May be called often. */
  readonly onPeerError?: (address: string, code: ErrorCode, why: string) => void;
}

/** A connected peer. A new connection with the same identity is another peer. */
export interface Peer {
  readonly identity: Buffer;
  /** The identity as text, one character per byte. */
  readonly key: string;
  /** Without the port. */
  readonly address: string;
  /** REQ, DEALER or ROUTER. */
  readonly socketType: string;
}

export const keyOf = (identity: Uint8Array): string =>
  Buffer.from(identity.buffer, identity.byteOffset, identity.length).toString("latin1");

export interface RouterOptions extends BindOptions {
  /**
   * The identity of this socket, for peers that are ROUTERs. Called for each peer with its identity and the address
   * that it reached, as `tcp://HOST:PORT`.
   */
  readonly identity?: (peer: Buffer, localUrl: string) => string;
}

export interface RouterListener {
  message(peer: Peer, frames: readonly Buffer[]): void;
  /** A message over a limit was dropped, with its first frames. */
  dropped?(peer: Peer, head: readonly Buffer[], why: string): void;
  joined?(peer: Peer): void;
  /** It disconnected, or another peer took its identity. */
  left?(peer: Peer): void;
}

export interface Router {
  readonly url: string;
  readonly port: number;
  /** Never waits. False if there is no such peer, or too much is queued for it. */
  send(key: string, frames: readonly Uint8Array[]): boolean;
  /** Queued messages have a moment to leave. */
  close(): Promise<void>;
}

export interface Publisher {
  readonly url: string;
  readonly port: number;
  /** To all peers that have subscribed to a prefix of the first frame. */
  publish(frames: readonly Uint8Array[]): void;
  close(): Promise<void>;
}

export interface ConnectOptions {
  /** tcp://HOST:PORT */
  readonly url: string;
  /** Automatic by default. */
  readonly identity?: string | undefined;
  readonly curve?: CurveClient | undefined;
  readonly heartbeatMs?: number;
  /** The first wait before it reconnects. Doubles up to `reconnectMaxMs`. */
  readonly reconnectMs?: number | undefined;
  readonly reconnectMaxMs?: number | undefined;
}

export interface DealerListener {
  message(frames: readonly Buffer[]): void;
  /** Connected, for the first time or again. */
  opened?(): void;
  /** Disconnected, or not reachable. Called once for each loss. */
  closed?(why: string): void;
}

export interface Dealer {
  /** Never waits. False if it is not connected, or too much is queued. */
  send(frames: readonly Uint8Array[]): boolean;
  close(): Promise<void>;
}
