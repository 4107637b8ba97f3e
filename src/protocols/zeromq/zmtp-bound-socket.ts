/** A bound ZMTP socket: it listens, keeps the open connections and their heartbeat, and closes them. */
import { createServer } from "node:net";
import { inUrl } from "../../base/addresses.js";
import { badInput, errnoOf } from "../../base/errors.js";
import { type BindOptions, DEFAULT_HEARTBEAT_MS, DEFAULT_LIMITS, type Limits } from "./types.js";
import { type ConnectionListener, ZmtpConnection, type ZmtpConnectionOptions } from "./zmtp-connection.js";

/** The events of one connection that its socket type handles. */
export type PeerListener = Omit<ConnectionListener, "protocolError" | "muchBuffered">;

export interface BoundSocket {
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

/** How long what was sent before the end may take to leave. */
const CLOSE_TIMEOUT_MS = 200;

export async function listen(
  options: BindOptions,
  side: Pick<ZmtpConnectionOptions, "socketType" | "accepts" | "identity">,
  accept: (connection: () => ZmtpConnection, address: string) => PeerListener,
): Promise<BoundSocket> {
  const { host, heartbeatMs = DEFAULT_HEARTBEAT_MS, onPeerError = () => {} } = options;
  const limits: Limits = { ...DEFAULT_LIMITS, ...options.limits };
  const full: ZmtpConnectionOptions = { ...side, bound: true, limits };
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
    const connection: ZmtpConnection = new ZmtpConnection(socket, full, {
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
    });
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
