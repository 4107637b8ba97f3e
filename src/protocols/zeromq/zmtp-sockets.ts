/**
 * ROUTER and PUB sockets in plain TypeScript: sockets that listen, keep the connections and their heartbeat.
 *
 * A DEALER socket in plain TypeScript: it connects, and reconnects by itself.
 *   connecting   opens a socket, then the handshake
 *   open         messages flow
 *   waiting      the connection was lost or refused; a timer starts the next try
 *   closed       by `close`
 */
import { connect, createServer } from "node:net";
import { inUrl } from "../../base/addresses.js";
import { badInput, errnoOf } from "../../base/errors.js";
import type { MakeMechanism } from "./mechanism.js";
import {
  type BindOptions,
  type ConnectOptions,
  DEFAULT_HEARTBEAT_MS,
  DEFAULT_LIMITS,
  type Dealer,
  type DealerListener,
  keyOf,
  type Limits,
  type Peer,
  type Publisher,
  type Router,
  type RouterListener,
  type RouterOptions,
} from "./types.js";
import { encodeMessage } from "./zmtp-codec.js";
import { type ConnectionListener, ZmtpConnection, type ZmtpConnectionOptions } from "./zmtp-connection.js";

/** How long queued messages may take to leave when the socket closes. */
const CLOSE_TIMEOUT_MS = 200;

/** With the mechanism that its keys ask for. */
export type Secured<Options> = Options & { readonly mechanism?: MakeMechanism | undefined };

async function listen(
  options: Secured<BindOptions>,
  side: Pick<ZmtpConnectionOptions, "socketType" | "accepts" | "identity">,
  accept: (connection: () => ZmtpConnection, address: string) => Omit<ConnectionListener, "protocolError">,
): Promise<{ readonly url: string; readonly port: number; close(): Promise<void> }> {
  const { host, heartbeatMs = DEFAULT_HEARTBEAT_MS, onPeerError = () => {} } = options;
  const limits: Limits = { ...DEFAULT_LIMITS, ...options.limits };
  const connections = new Set<ZmtpConnection>();
  const limitBuffered = (): void => {
    let [sum, most, largest]: [number, number, ZmtpConnection | undefined] = [0, 0, undefined];
    for (const connection of connections) {
      const { bufferedBytes } = connection;
      sum += bufferedBytes;
      if (bufferedBytes > most) [most, largest] = [bufferedBytes, connection];
    }
    if (sum > limits.bufferedBytesInAll) largest?.destroy(`${sum} bytes are buffered, most of them for this peer`);
  };
  const server = createServer((socket) => {
    const address = socket.remoteAddress ?? "unknown";
    if (options.guard?.admit(socket) === false) return;
    if (connections.size >= limits.peers) {
      socket.on("error", () => {});
      socket.destroy();
      onPeerError(address, "LABORO_TOO_MANY_PEERS", `${limits.peers} peers are connected already`);
      return;
    }
    const session = accept(() => connection, address);
    const connection: ZmtpConnection = new ZmtpConnection(
      socket,
      { ...side, bound: true, limits, mechanism: options.mechanism },
      {
        ...session,
        muchBuffered: limitBuffered,
        opened: (peer) => {
          options.guard?.authenticated(socket);
          session.opened(peer);
        },
        protocolError: ({ code, message }) => onPeerError(address, code, message),
        closed: (why) => {
          connections.delete(connection);
          session.closed(why);
        },
      },
    );
    connections.add(connection);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, host, resolve);
  }).catch((cause: unknown) => {
    const why = errnoOf(cause) === "EADDRINUSE" ? "something else listens there" : String(cause);
    throw badInput(`cannot listen on tcp://${inUrl(host)}:${options.port}: ${why}`, cause);
  });
  server.on("error", (error) => onPeerError(host, "LABORO_INTERNAL", `the listening socket failed: ${error.message}`));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : options.port;
  const heartbeat = setInterval(() => {
    for (const connection of connections) connection.beat();
  }, heartbeatMs);
  return {
    url: `tcp://${inUrl(host)}:${port}`,
    port,
    close: () =>
      new Promise((resolve) => {
        clearInterval(heartbeat);
        const closeTimer = setTimeout(() => {
          for (const connection of connections) connection.destroy("the socket was closed");
        }, CLOSE_TIMEOUT_MS);
        server.close(() => {
          clearTimeout(closeTimer);
          resolve();
        });
        for (const connection of connections) connection.end();
      }),
  };
}

interface ConnectedPeer {
  readonly peer: Peer;
  readonly connection: ZmtpConnection;
}

/** How long a peer has to answer a PING. */
const LIVENESS_TIMEOUT_MS = 1_000;

/**
 * A ROUTER knows a peer by its identity. When a second peer gives the same identity, it waits until the first has been
 * sent a PING. If the first answers, the second is refused, as ZeroMQ does. If not, the second replaces it, so that a
 * peer can reconnect before the loss of its old connection was noticed.
 */
export async function openZmtpRouter(options: Secured<RouterOptions>, listener: RouterListener): Promise<Router> {
  const peers = new Map<string, ConnectedPeer>();
  let lastNumber = Math.floor(Math.random() * 2 ** 32);

  /** As in ZeroMQ: five bytes, of which the first is zero, which no peer may choose. */
  const automaticIdentity = (): Buffer => {
    const identity = Buffer.alloc(5);
    do {
      lastNumber = (lastNumber + 1) >>> 0;
      identity.writeUInt32BE(lastNumber, 1);
    } while (peers.has(keyOf(identity)));
    return identity;
  };

  const leave = (one: ConnectedPeer): void => {
    if (peers.get(one.peer.key) !== one) return;
    peers.delete(one.peer.key);
    listener.left?.(one.peer);
  };

  const side = {
    socketType: "ROUTER",
    accepts: ["DEALER", "REQ", "ROUTER"],
    identity: (peer: Buffer, localUrl: string) => Buffer.from(options.identity?.(peer, localUrl) ?? "", "latin1"),
  };
  const socket = await listen(options, side, (connection, address) => {
    let own: ConnectedPeer | undefined;
    /** Messages that came while it waits. */
    const held: (readonly Buffer[])[] = [];
    const message = (frames: readonly Buffer[]): void => {
      if (own === undefined) held.push(frames);
      // Messages that a replaced connection had already received are dropped.
      else if (peers.get(own.peer.key) === own) listener.message(own.peer, frames);
    };
    const enter = (one: ConnectedPeer): void => {
      own = one;
      peers.set(one.peer.key, one);
      listener.joined?.(one.peer);
    };
    const wait = async (one: ConnectedPeer): Promise<void> => {
      one.connection.pause();
      // Several may wait. When one has replaced the first, the others wait for that one.
      for (let before = peers.get(one.peer.key); before !== undefined; before = peers.get(one.peer.key)) {
        const alive = await before.connection.isAlive(LIVENESS_TIMEOUT_MS);
        if (!one.connection.open) return;
        if (alive) {
          options.onPeerError?.(address, "LABORO_BAD_MESSAGE", "its identity belongs to a connected peer");
          one.connection.destroy("its identity is taken");
          return;
        }
        if (peers.get(one.peer.key) === before) {
          leave(before);
          before.connection.destroy("another connection gave the same identity");
        }
      }
      enter(one);
      for (const frames of held.splice(0)) message(frames);
      one.connection.resume();
    };
    return {
      opened: ({ identity: given, socketType }) => {
        const identity = given.length === 0 || given[0] === 0 ? automaticIdentity() : given;
        const one = { peer: { identity, key: keyOf(identity), address, socketType }, connection: connection() };
        if (!peers.has(one.peer.key)) enter(one);
        else wait(one).catch((cause: unknown) => one.connection.destroy(String(cause)));
      },
      message,
      dropped: (head, why) => {
        if (own !== undefined && peers.get(own.peer.key) === own) listener.dropped?.(own.peer, head, why);
      },
      closed: () => {
        if (own !== undefined) leave(own);
      },
    };
  });
  return { ...socket, send: (key, frames) => peers.get(key)?.connection.send(frames) ?? false };
}

/** Limits of one subscriber. */
const MAX_SUBSCRIPTIONS = 10_000;
const MAX_TOPIC_BYTES = 1024;

const SUBSCRIBE = 1;
const CANCEL = 0;

/** Subscribers are kept by topic prefix. A message costs one lookup for each length of a prefix. */
export async function openZmtpPublisher(options: Secured<BindOptions>): Promise<Publisher> {
  const subscribers = new Map<string, Set<ZmtpConnection>>();
  /** The number of prefixes of each length. */
  const lengths = new Map<number, number>();

  const add = (topic: string, connection: ZmtpConnection): void => {
    let those = subscribers.get(topic);
    if (those === undefined) {
      those = new Set();
      subscribers.set(topic, those);
      lengths.set(topic.length, (lengths.get(topic.length) ?? 0) + 1);
    }
    those.add(connection);
  };

  const remove = (topic: string, connection: ZmtpConnection): void => {
    const those = subscribers.get(topic);
    if (those?.delete(connection) !== true || those.size > 0) return;
    subscribers.delete(topic);
    const left = (lengths.get(topic.length) ?? 1) - 1;
    if (left === 0) lengths.delete(topic.length);
    else lengths.set(topic.length, left);
  };

  const limits = { ...options.limits, messageBytes: 64 * 1024, frames: 1 };
  const side = { socketType: "PUB", accepts: ["SUB", "XSUB"], identity: () => Buffer.alloc(0) };
  const socket = await listen({ ...options, limits }, side, (connection, address) => {
    /** How often this peer has subscribed to each topic. */
    const topics = new Map<string, number>();
    const change = (wanted: boolean, body: Buffer): void => {
      const topic = keyOf(body);
      const times = (topics.get(topic) ?? 0) + (wanted ? 1 : -1);
      if (times < 0) return;
      if (times === 0) {
        topics.delete(topic);
        remove(topic, connection());
      } else if (topics.has(topic) || (topics.size < MAX_SUBSCRIPTIONS && body.length <= MAX_TOPIC_BYTES)) {
        topics.set(topic, times);
        add(topic, connection());
      } else {
        const why = `over ${MAX_SUBSCRIPTIONS} subscriptions, or one of over ${MAX_TOPIC_BYTES} bytes: ignored`;
        options.onPeerError?.(address, "LABORO_BAD_MESSAGE", why);
      }
    };
    return {
      opened: () => {},
      // ZMTP 3.0 subscribes by messages, 3.1 by commands.
      message: ([frame]) => {
        if (frame?.[0] === SUBSCRIBE || frame?.[0] === CANCEL) change(frame[0] === SUBSCRIBE, frame.subarray(1));
      },
      command: (name, body) => {
        if (name === "SUBSCRIBE" || name === "CANCEL") change(name === "SUBSCRIBE", body);
      },
      closed: () => {
        for (const topic of topics.keys()) remove(topic, connection());
      },
    };
  });
  return {
    ...socket,
    publish: (frames) => {
      const topic = keyOf(frames[0] ?? Buffer.alloc(0));
      const reached = new Set<ZmtpConnection>();
      for (const length of lengths.keys()) {
        if (length > topic.length) continue;
        for (const connection of subscribers.get(topic.slice(0, length)) ?? []) reached.add(connection);
      }
      if (reached.size === 0) return;
      const bytes = encodeMessage(frames);
      for (const connection of reached) connection.sendBytes(bytes);
    },
  };
}

const RECONNECT_MS = 100;
const RECONNECT_MAX_MS = 5_000;

export class ZmtpDealer implements Dealer {
  readonly #options: Secured<ConnectOptions>;
  readonly #listener: DealerListener;
  readonly #address: { readonly host: string; readonly port: number };
  readonly #heartbeat: NodeJS.Timeout;
  #state: "connecting" | "open" | "waiting" | "closed" = "connecting";
  #connection: ZmtpConnection | undefined;
  #tries = 0;
  #reconnectTimer: NodeJS.Timeout | undefined;
  /** Each loss is reported once. */
  #lossReported = false;
  #ended: (() => void) | undefined;

  constructor(options: Secured<ConnectOptions>, listener: DealerListener) {
    this.#options = options;
    this.#listener = listener;
    this.#address = parseTcpUrl(options.url);
    const { heartbeatMs = DEFAULT_HEARTBEAT_MS } = options;
    this.#heartbeat = setInterval(() => this.#connection?.beat(), heartbeatMs);
    this.#connect();
  }

  send(frames: readonly Uint8Array[]): boolean {
    return this.#state === "open" && (this.#connection?.send(frames) ?? false);
  }

  close(): Promise<void> {
    clearInterval(this.#heartbeat);
    clearTimeout(this.#reconnectTimer);
    this.#state = "closed";
    const connection = this.#connection;
    if (connection === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      const closeTimer = setTimeout(() => connection.destroy("it was closed"), CLOSE_TIMEOUT_MS);
      this.#ended = () => {
        clearTimeout(closeTimer);
        resolve();
      };
      connection.end();
    });
  }

  #connect(): void {
    this.#state = "connecting";
    const { identity = "", mechanism } = this.#options;
    const socket = connect(this.#address);
    let fault: string | undefined;
    this.#connection = new ZmtpConnection(
      socket,
      {
        socketType: "DEALER",
        accepts: ["ROUTER", "DEALER", "REP"],
        bound: false,
        mechanism,
        identity: () => Buffer.from(identity, "latin1"),
        limits: DEFAULT_LIMITS,
      },
      {
        opened: () => {
          if (this.#state !== "connecting") return;
          this.#state = "open";
          this.#tries = 0;
          this.#lossReported = false;
          this.#listener.opened?.();
        },
        message: (frames) => {
          if (this.#state === "open") this.#listener.message(frames);
        },
        protocolError: ({ message }) => {
          fault = message;
        },
        closed: (why) => this.#lost(fault ?? why),
      },
    );
  }

  #lost(why: string): void {
    this.#connection = undefined;
    if (this.#state === "closed") {
      this.#ended?.();
      return;
    }
    this.#state = "waiting";
    const { reconnectMs = RECONNECT_MS, reconnectMaxMs = RECONNECT_MAX_MS } = this.#options;
    const wait = Math.min(reconnectMs * 2 ** this.#tries, reconnectMaxMs);
    this.#tries = Math.min(this.#tries + 1, 30);
    // After a restart of the server not all reconnect at the same moment.
    this.#reconnectTimer = setTimeout(() => this.#connect(), wait * (0.75 + Math.random() / 4));
    if (this.#lossReported) return;
    this.#lossReported = true;
    this.#listener.closed?.(why);
  }
}

export function parseTcpUrl(url: string): { readonly host: string; readonly port: number } {
  const [, v6, name, port] = /^tcp:\/\/(?:\[([^\]]+)\]|([^:/[\]]+)):(\d{1,5})$/.exec(url) ?? [];
  const host = v6 ?? name;
  if (host === undefined || Number(port) > 65_535) throw badInput(`expected tcp://HOST:PORT, got ${url}`);
  return { host, port: Number(port) };
}
