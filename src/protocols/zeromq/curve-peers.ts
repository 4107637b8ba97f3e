/** The other sockets with CURVE, by the `zeromq` package: PUB, and DEALER and SUB of the side that connects. */
import { Context, Dealer as ZmqDealer, Publisher as ZmqPublisher, Subscriber as ZmqSubscriber } from "zeromq";
import { inUrl } from "../../base/addresses.js";
import { GREETING_TIMEOUT_MS } from "../../base/connection-guard.js";
import { badInput } from "../../base/errors.js";
import { openZapHandler } from "./curve-auth.js";
import {
  type BindOptions,
  type ConnectOptions,
  type CurveClient,
  type CurveServer,
  DEFAULT_HEARTBEAT_MS,
  type Dealer,
  type DealerListener,
  type Publisher,
  type Subscriber,
  type SubscriberOptions,
} from "./types.js";

export async function openCurvePublisher(options: BindOptions & { curve: CurveServer }): Promise<Publisher> {
  const { curve, host, onPeerError = () => {} } = options;
  const context = new Context();
  const closeZapHandler = await openZapHandler(context, curve.known, {
    admitted: () => {},
    refused: (address, key) => onPeerError(address, "LABORO_BAD_TOKEN", `the CURVE key ${key} is not known here`),
  });
  const socket = new ZmqPublisher({
    context,
    curveServer: true,
    curvePublicKey: curve.publicKey,
    curveSecretKey: curve.secretKey,
    zapDomain: "laboro",
    handshakeInterval: GREETING_TIMEOUT_MS,
    linger: 0,
  });
  try {
    await socket.bind(`tcp://${inUrl(host)}:${options.port === 0 ? "*" : options.port}`);
  } catch (cause) {
    socket.close();
    closeZapHandler();
    throw badInput(`cannot publish on tcp://${inUrl(host)}:${options.port}: ${String(cause)}`, cause);
  }
  const port = Number(/:(\d+)$/.exec(socket.lastEndpoint ?? "")?.[1] ?? options.port);
  // A PUB never waits for its subscribers; only the package wants one send after the other.
  let last = Promise.resolve();
  return {
    url: `tcp://${inUrl(host)}:${port}`,
    port,
    publish: (frames) => {
      last = last.then(() => socket.send(frames as Uint8Array[])).catch(() => {});
    },
    close: async () => {
      socket.close();
      closeZapHandler();
    },
  };
}

const keysOf = ({ publicKey, secretKey, serverKey }: CurveClient) => ({
  curvePublicKey: publicKey,
  curveSecretKey: secretKey,
  curveServerKey: serverKey,
});

export function openCurveDealer(options: ConnectOptions & { curve: CurveClient }, listener: DealerListener): Dealer {
  const { identity, heartbeatMs = DEFAULT_HEARTBEAT_MS } = options;
  const socket = new ZmqDealer({
    ...keysOf(options.curve),
    linger: 200,
    sendTimeout: 0,
    heartbeatInterval: heartbeatMs,
    heartbeatTimeout: heartbeatMs * 3,
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

export function openCurveSubscriber(
  options: SubscriberOptions & { curve: CurveClient },
  listener: DealerListener,
): Subscriber {
  const socket = new ZmqSubscriber({ ...keysOf(options.curve), linger: 0 });
  socket.subscribe(...options.topics);
  socket.events.on("handshake", () => listener.opened?.());
  socket.events.on("disconnect", () => listener.closed?.("the connection was closed by the other end"));
  socket.connect(options.url);
  const receive = async (): Promise<void> => {
    for await (const frames of socket) listener.message(frames);
  };
  void receive().catch(() => {});
  return {
    close: async () => socket.close(),
  };
}
