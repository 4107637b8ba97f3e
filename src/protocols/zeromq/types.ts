/** The ZeroMQ sockets that laboro uses. index.ts decides whether a socket is plain TypeScript or one of the `zeromq` package. */
import type { ListenerGuard } from "../../base/connection-guard.js";
import type { ErrorCode } from "../../base/errors.js";

export interface Limits {
  /** Frames of one message; one with more is dropped. */
  readonly frames: number;
  /** Bytes of one message; one with more is dropped, and a peer that sends 16 times as many is cut off. With CURVE, one that sends more. */
  readonly messageBytes: number;
  /** Bytes on their way to one peer; what comes on top is dropped. */
  readonly queueBytes: number;
  /** Bytes on their way to all peers of a bound socket, and of messages that have not come whole; the peer with the most is cut off. */
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

/** Three of these without a byte from a peer that could have answered, and its connection is over. */
export const DEFAULT_HEARTBEAT_MS = 5_000;

/** Keys as ZeroMQ writes them: 40 characters of Z85. */
export interface CurveServer {
  readonly publicKey: string;
  readonly secretKey: string;
  /** Public keys of those that may come in. */
  readonly known: readonly string[];
}

export interface CurveClient {
  readonly publicKey: string;
  readonly secretKey: string;
  readonly serverKey: string;
}

export interface BindOptions {
  readonly host: string;
  /** 0 takes any free one. */
  readonly port: number;
  readonly curve?: CurveServer;
  readonly limits?: Partial<Limits>;
  readonly heartbeatMs?: number;
  /** Counts and bounds the connections; not those with CURVE, which ZeroMQ accepts itself. */
  readonly guard?: ListenerGuard;
  /** A peer that misbehaves, by its address; may be called often. */
  readonly onPeerError?: (address: string, code: ErrorCode, why: string) => void;
}

/** A peer that is connected. Another connection with the same identity is another peer, and the first has left. */
export interface Peer {
  readonly identity: Buffer;
  /** The identity as text, one character a byte: for maps, and for `send`. */
  readonly key: string;
  /** Its address without the port; `unknown` where ZeroMQ does not report it. */
  readonly address: string;
  /** REQ, DEALER or ROUTER; empty where ZeroMQ does not report it. */
  readonly socketType: string;
}

export const keyOf = (identity: Uint8Array): string =>
  Buffer.from(identity.buffer, identity.byteOffset, identity.length).toString("latin1");

export interface RouterOptions extends BindOptions {
  /**
   * By which name a ROUTER among the peers is to know this one. It is asked for each peer, with the peer's identity and the address that it
   * reached, as `tcp://HOST:PORT`; with CURVE once, with an empty identity and the address that is bound.
   */
  readonly identity?: (peer: Buffer, localUrl: string) => string;
}

export interface RouterListener {
  message(peer: Peer, frames: readonly Buffer[]): void;
  /** A message over a limit was dropped: its first frames, and which limit. Not with CURVE. */
  dropped?(peer: Peer, head: readonly Buffer[], why: string): void;
  /** Before its first message. With CURVE it is the first message that makes a peer known. */
  joined?(peer: Peer): void;
  /** Its connection is over, or another peer came with its identity. With CURVE it is noticed when something is sent to it. */
  left?(peer: Peer): void;
  /** With CURVE: a connection is over, and ZeroMQ does not say whose. A message to each peer shows which one it was. */
  unknownPeerLeft?(): void;
}

export interface Router {
  readonly url: string;
  readonly port: number;
  /** Never waits. False where there is no such peer, or where too much is on its way to it already. */
  send(key: string, frames: readonly Uint8Array[]): boolean;
  /** What was sent before is given a moment to leave. */
  close(): Promise<void>;
}

export interface Publisher {
  readonly url: string;
  readonly port: number;
  /** To all that have subscribed to a prefix of the first frame. */
  publish(frames: readonly Uint8Array[]): void;
  close(): Promise<void>;
}

export interface ConnectOptions {
  /** tcp://HOST:PORT */
  readonly url: string;
  /** An automatic one if absent. */
  readonly identity?: string;
  readonly curve?: CurveClient;
  readonly heartbeatMs?: number;
  /** The wait before it connects again: so long at first, doubled up to `reconnectMaxMs`. */
  readonly reconnectMs?: number;
  readonly reconnectMaxMs?: number;
}

export interface DealerListener {
  message(frames: readonly Buffer[]): void;
  /** The other end is there: for the first time, or again. */
  opened?(): void;
  /** It is gone or never was; it is tried again by itself. Said once for each loss. */
  closed?(why: string): void;
}

export interface Dealer {
  /** Never waits. False where nobody is at the other end, or too much is on its way already. */
  send(frames: readonly Uint8Array[]): boolean;
  close(): Promise<void>;
}
