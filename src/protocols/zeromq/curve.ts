/**
 * Sockets with CURVE, by the `zeromq` package. The package takes one send at a time. A ROUTER is `mandatory` and does
 * not wait: a send to a disconnected peer fails at once, and that is how a disconnect is noticed.
 */
import { Context, Dealer as ZmqDealer, Publisher as ZmqPublisher, Router as ZmqRouter } from "zeromq";
import { inUrl } from "../../base/addresses.js";
import { GREETING_TIMEOUT_MS } from "../../base/connection-guard.js";
import { z85 } from "../../base/curve-key.js";
import { badInput, errnoOf } from "../../base/errors.js";
import { keepLatest } from "../../base/keep-latest.js";
import {
  type BindOptions,
  type ConnectOptions,
  type CurveClient,
  type CurveServer,
  DEFAULT_HEARTBEAT_MS,
  DEFAULT_LIMITS,
  type Dealer,
  type DealerListener,
  keyOf,
  type Peer,
  type Publisher,
  type Router,
  type RouterListener,
  type RouterOptions,
} from "./types.js";
import { messageSize } from "./zmtp-codec.js";

/** Messages that wait for the package, for all peers. */
const MAX_WAITING = 100_000;
/** Whole messages that ZeroMQ reads ahead from a peer. */
const RECEIVED_AHEAD = 16;
/** When all peers are probed after a connection was lost, to find whose it was. Twice: ZeroMQ may not know it yet. */
const PROBE_DELAY_MS = 50;
const SECOND_PROBE_DELAY_MS = 1_000;
const ZAP_ENDPOINT = "inproc://zeromq.zap.01";

/** Probes without an answer, before a connection is lost. */
const MISSED_LIMIT = 3;

/**
 * By TCP, not by ZMTP's PING: libzmq 4.3.5 ends the process when it is time for a PING and the peer was cut off while
 * its messages waited to be read.
 */
function lossDetection(heartbeatMs: number) {
  const seconds = Math.max(1, Math.ceil(heartbeatMs / 1_000));
  return {
    tcpKeepalive: 1,
    tcpKeepaliveIdle: seconds,
    tcpKeepaliveInterval: seconds,
    tcpKeepaliveCount: MISSED_LIMIT,
    tcpMaxRetransmitTimeout: seconds * (MISSED_LIMIT + 1) * 1_000,
  } as const;
}

type CurveBindOptions<Options extends BindOptions> = Options & { readonly curve: CurveServer };
/** Called for each peer that may connect, with its identity if it gave one. */
type Admitted = (identity: Buffer, address: string) => void;

/** Binds the socket that `open` creates, with a ZAP handler that admits only the known keys. */
async function bind<Socket extends ZmqRouter | ZmqPublisher>(
  options: CurveBindOptions<BindOptions>,
  open: (common: object) => Socket,
  admitted: Admitted = () => {},
) {
  const { curve, host } = options;
  const context = new Context();
  const closeZapHandler = await openZapHandler(context, options, admitted);
  const socket = open({
    context,
    curveServer: true,
    curvePublicKey: curve.publicKey,
    curveSecretKey: curve.secretKey,
    zapDomain: "laboro",
    handshakeInterval: GREETING_TIMEOUT_MS,
    linger: 0,
  });
  const close = async (): Promise<void> => {
    socket.close();
    closeZapHandler();
  };
  try {
    await socket.bind(`tcp://${inUrl(host)}:${options.port === 0 ? "*" : options.port}`);
  } catch (cause) {
    await close();
    throw badInput(`cannot listen on tcp://${inUrl(host)}:${options.port}: ${String(cause)}`, cause);
  }
  const port = Number(/:(\d+)$/.exec(socket.lastEndpoint ?? "")?.[1] ?? options.port);
  return { socket, url: `tcp://${inUrl(host)}:${port}`, port, close };
}

/** ZeroMQ asks it, inside this process, about every connection to a CURVE server (RFC 27). One a context. */
async function openZapHandler(
  context: Context,
  { curve, onPeerError = () => {} }: CurveBindOptions<BindOptions>,
  admitted: Admitted,
): Promise<() => void> {
  const allowed = new Set(curve.known);
  const socket = new ZmqRouter({ context, linger: 0 });
  await socket.bind(ZAP_ENDPOINT);
  const answer = async (): Promise<void> => {
    for await (const frames of socket) {
      const [asker, , version, id, , address, identity, mechanism, credentials] = frames;
      const key = credentials === undefined ? "" : z85(credentials);
      const fits = version?.toString() === "1.0" && mechanism?.toString() === "CURVE";
      const good = fits && allowed.has(key);
      const place = address?.toString() ?? "unknown";
      if (good) admitted(identity ?? Buffer.alloc(0), place);
      else onPeerError(place, "LABORO_BAD_TOKEN", `the CURVE key ${key} is unknown: add it to the known keys`);
      const status = good ? ["200", "OK", key, ""] : ["400", "this key is not known here", "", ""];
      await socket.send([asker ?? "", "", "1.0", id ?? "", ...status]);
    }
  };
  // It ends with the socket.
  void answer().catch(() => {});
  return () => socket.close();
}

export async function openCurveRouter(
  options: CurveBindOptions<RouterOptions>,
  listener: RouterListener,
): Promise<Router> {
  const { host, onPeerError = () => {}, heartbeatMs = DEFAULT_HEARTBEAT_MS } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const addresses = new Map<string, string>();
  const admitted = (identity: Buffer, address: string): void => {
    if (identity.length === 0) return;
    addresses.set(keyOf(identity), address);
    keepLatest(addresses, limits.peers);
  };
  const routingId = options.identity?.(Buffer.alloc(0), `tcp://${inUrl(host)}:${options.port}`);
  const open = (common: object): ZmqRouter =>
    new ZmqRouter({
      ...common,
      ...(routingId === undefined ? {} : { routingId }),
      handover: true,
      mandatory: true,
      receiveHighWaterMark: RECEIVED_AHEAD,
      sendTimeout: 0,
      maxMessageSize: limits.messageBytes,
      ...lossDetection(heartbeatMs),
    });
  const { socket, url, port, close } = await bind(options, open, admitted);
  const probe = (): void => listener.unknownPeerLeft?.();
  let probeTimer: NodeJS.Timeout | undefined;
  let secondProbeTimer: NodeJS.Timeout | undefined;
  let lostSince = false;
  const probeAgain = (): void => {
    lostSince = false;
    secondProbeTimer = setTimeout(() => {
      secondProbeTimer = undefined;
      probe();
      if (lostSince) probeAgain();
    }, SECOND_PROBE_DELAY_MS);
  };
  // Strangers cause this event, too. However often it comes, the peers are probed at least once a second.
  socket.events.on("disconnect", () => {
    clearTimeout(probeTimer);
    probeTimer = setTimeout(probe, PROBE_DELAY_MS);
    if (secondProbeTimer === undefined) probeAgain();
    else lostSince = true;
  });
  socket.events.on("handshake:error:protocol", ({ error }) =>
    onPeerError("unknown", "LABORO_BAD_TOKEN", `a peer without CURVE, or with another server's key: ${error.message}`),
  );
  const present = new Map<string, Peer>();
  const waiting: { readonly peer: Peer; readonly frames: readonly Uint8Array[] }[] = [];
  let waitingBytes = 0;
  let sending = false;
  let closed = false;

  const leave = (peer: Peer): void => {
    if (present.get(peer.key) !== peer) return;
    present.delete(peer.key);
    listener.left?.(peer);
  };

  const pump = async (): Promise<void> => {
    sending = true;
    for (let next = waiting.shift(); next !== undefined && !closed; next = waiting.shift()) {
      const { peer, frames } = next;
      waitingBytes -= messageSize(frames);
      try {
        await socket.send([peer.identity, ...(frames as Uint8Array[])]);
      } catch (cause) {
        // EHOSTUNREACH: it is disconnected. EAGAIN: its queue is full, and the message is lost, as with any ROUTER.
        if (errnoOf(cause) === "EHOSTUNREACH") leave(peer);
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
        if (present.size > limits.peers && first !== undefined) leave(first);
      }
      if (frames.length > limits.frames) {
        onPeerError(peer.address, "LABORO_BAD_MESSAGE", `a message of ${frames.length} frames was dropped`);
      } else {
        listener.message(peer, frames);
      }
    }
  };
  void receive().catch((cause: unknown) => {
    if (!closed) onPeerError(host, "LABORO_INTERNAL", `the ZeroMQ socket failed: ${String(cause)}`);
  });

  return {
    url,
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
    close: () => {
      closed = true;
      clearTimeout(probeTimer);
      clearTimeout(secondProbeTimer);
      return close();
    },
  };
}

export async function openCurvePublisher(options: CurveBindOptions<BindOptions>): Promise<Publisher> {
  const { socket, url, port, close } = await bind(options, (common) => new ZmqPublisher(common));
  // A PUB never waits for its subscribers.
  let last = Promise.resolve();
  return {
    url,
    port,
    publish: (frames) => {
      last = last.then(() => socket.send(frames as Uint8Array[])).catch(() => {});
    },
    close,
  };
}

export function openCurveDealer(options: ConnectOptions & { curve: CurveClient }, listener: DealerListener): Dealer {
  const { identity, curve, heartbeatMs = DEFAULT_HEARTBEAT_MS } = options;
  const socket = new ZmqDealer({
    curvePublicKey: curve.publicKey,
    curveSecretKey: curve.secretKey,
    curveServerKey: curve.serverKey,
    linger: 200,
    sendTimeout: 0,
    ...lossDetection(heartbeatMs),
    reconnectInterval: options.reconnectMs ?? 100,
    reconnectMaxInterval: options.reconnectMaxMs ?? 5_000,
    ...(identity === undefined ? {} : { routingId: identity }),
  });
  let open = false;
  let missed = false;
  let last = Promise.resolve();
  const lost = (why: string): void => {
    open = false;
    if (missed) return;
    missed = true;
    listener.closed?.(why);
  };
  socket.events.on("handshake", () => {
    open = true;
    missed = false;
    listener.opened?.();
  });
  socket.events.on("disconnect", () => lost("the connection was closed by the other end"));
  socket.events.on("handshake:error:auth", ({ error }) => lost(error.message));
  socket.events.on("handshake:error:other", ({ error }) => lost(error.message));
  socket.events.on("close:error", ({ error }) => lost(error.message));
  socket.events.on("connect:retry", () => lost("nobody answers"));
  socket.connect(options.url);
  const receive = async (): Promise<void> => {
    for await (const frames of socket) listener.message(frames);
  };
  // It ends with the socket.
  void receive().catch(() => {});
  return {
    send: (frames) => {
      if (!open) return false;
      last = last.then(() => socket.send(frames as Uint8Array[])).catch(() => {});
      return true;
    },
    close: async () => {
      await last;
      socket.close();
    },
  };
}
