/**
 * A ROUTER socket with CURVE, by the `zeromq` package. Sends go one after the other, because the package takes one at a time; with
 * `mandatory` and no wait, one to a peer that is gone fails at once, and that is how it is noticed.
 */
import { Context, Router as ZmqRouter } from "zeromq";
import { inUrl } from "../../base/addresses.js";
import { GREETING_TIMEOUT_MS } from "../../base/connection-guard.js";
import { badInput } from "../../base/errors.js";
import { openZapHandler } from "./curve-auth.js";
import {
  type CurveServer,
  DEFAULT_HEARTBEAT_MS,
  DEFAULT_LIMITS,
  keyOf,
  type Peer,
  type Router,
  type RouterListener,
  type RouterOptions,
} from "./types.js";
import { messageSize } from "./zmtp-frames.js";

/** Messages that wait for the package, for all peers together. */
const MAX_WAITING = 100_000;
/** Whole messages that ZeroMQ reads ahead from a peer. */
const RECEIVED_AHEAD = 16;

/** When, after a connection was lost, all peers are probed to find whose it was. */
const LOST_PEER_PROBE_DELAYS_MS = [50, 1_000];

interface Sending {
  readonly peer: Peer;
  readonly frames: readonly Uint8Array[];
}

export async function openCurveRouter(
  options: RouterOptions & { curve: CurveServer },
  listener: RouterListener,
): Promise<Router> {
  const { curve, host, onPeerError = () => {}, heartbeatMs = DEFAULT_HEARTBEAT_MS } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const context = new Context();
  const addresses = new Map<string, string>();
  const closeZapHandler = await openZapHandler(context, curve.known, {
    admitted: (identity, address) => {
      if (identity.length === 0) return;
      addresses.set(keyOf(identity), address);
      const [oldest] = addresses.keys();
      if (addresses.size > limits.peers && oldest !== undefined) addresses.delete(oldest);
    },
    refused: (address, key) => onPeerError(address, "LABORO_BAD_TOKEN", `the CURVE key ${key} is not known here`),
  });
  const socket = new ZmqRouter({
    context,
    curveServer: true,
    curvePublicKey: curve.publicKey,
    curveSecretKey: curve.secretKey,
    zapDomain: "laboro",
    ...(options.identity === undefined
      ? {}
      : { routingId: options.identity(Buffer.alloc(0), `tcp://${inUrl(host)}:${options.port}`) }),
    handover: true,
    mandatory: true,
    receiveHighWaterMark: RECEIVED_AHEAD,
    sendTimeout: 0,
    linger: 0,
    maxMessageSize: limits.messageBytes,
    handshakeInterval: GREETING_TIMEOUT_MS,
    heartbeatInterval: heartbeatMs,
    heartbeatTimeout: heartbeatMs * 3,
    tcpKeepalive: 1,
  });
  let probeTimers: NodeJS.Timeout[] = [];
  socket.events.on("disconnect", () => {
    for (const timer of probeTimers) clearTimeout(timer);
    // The event may come before the socket itself knows, and many at a time.
    probeTimers = LOST_PEER_PROBE_DELAYS_MS.map((ms) => setTimeout(() => listener.unknownPeerLeft?.(), ms));
  });
  socket.events.on("handshake:error:protocol", ({ error }) =>
    onPeerError("unknown", "LABORO_BAD_TOKEN", `a peer without CURVE, or with another server's key: ${error.message}`),
  );
  const present = new Map<string, Peer>();
  const waiting: Sending[] = [];
  let waitingBytes = 0;
  let sending = false;
  let closed = false;

  const pump = async (): Promise<void> => {
    sending = true;
    for (let next = waiting.shift(); next !== undefined && !closed; next = waiting.shift()) {
      const { peer, frames } = next;
      waitingBytes -= messageSize(frames);
      try {
        await socket.send([peer.identity, ...(frames as Uint8Array[])]);
      } catch (cause) {
        // EHOSTUNREACH: it is gone. EAGAIN: its queue is full, and the message is lost, as with any ROUTER.
        if (isUnreachable(cause) && present.get(peer.key) === peer) {
          present.delete(peer.key);
          listener.left?.(peer);
        }
      }
    }
    sending = false;
  };

  const receive = async (): Promise<void> => {
    for await (const [identity = Buffer.alloc(0), ...frames] of socket) {
      const key = keyOf(identity);
      let peer = present.get(key);
      if (peer === undefined) {
        peer = { identity: Buffer.from(identity), key, address: addresses.get(key) ?? "unknown", socketType: "" };
        present.set(key, peer);
        listener.joined?.(peer);
        const [first] = present.values();
        if (present.size > limits.peers && first !== undefined) {
          present.delete(first.key);
          listener.left?.(first);
        }
      }
      if (frames.length > limits.frames) {
        onPeerError(peer.address, "LABORO_BAD_MESSAGE", `a message of ${frames.length} frames was dropped`);
      } else {
        listener.message(peer, frames);
      }
    }
  };

  try {
    await socket.bind(`tcp://${inUrl(host)}:${options.port === 0 ? "*" : options.port}`);
  } catch (cause) {
    socket.close();
    closeZapHandler();
    throw badInput(`cannot listen on tcp://${inUrl(host)}:${options.port}: ${String(cause)}`, cause);
  }
  const port = Number(/:(\d+)$/.exec(socket.lastEndpoint ?? "")?.[1] ?? options.port);
  void receive().catch((cause: unknown) => {
    if (!closed) onPeerError(host, "LABORO_INTERNAL", `the ZeroMQ socket failed: ${String(cause)}`);
  });
  return {
    url: `tcp://${inUrl(host)}:${port}`,
    port,
    send: (key, frames) => {
      const peer = present.get(key);
      if (peer === undefined || closed || waiting.length >= MAX_WAITING) return false;
      const bytes = messageSize(frames);
      if (waitingBytes + bytes > limits.bufferedBytesInAll) return false;
      waitingBytes += bytes;
      waiting.push({ peer, frames });
      if (!sending) void pump();
      return true;
    },
    drop: (key) => {
      const peer = present.get(key);
      if (peer === undefined) return;
      present.delete(key);
      listener.left?.(peer);
    },
    close: async () => {
      closed = true;
      for (const timer of probeTimers) clearTimeout(timer);
      socket.close();
      closeZapHandler();
    },
  };
}

const isUnreachable = (cause: unknown): boolean =>
  typeof cause === "object" && cause !== null && "code" in cause && cause.code === "EHOSTUNREACH";
