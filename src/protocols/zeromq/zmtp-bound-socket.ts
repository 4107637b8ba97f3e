/** A bound ZMTP socket: listening, the connections that are there, their heartbeat, and the end. */
import { createServer } from "node:net";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { inUrl } from "../../base/addresses.js";
import { type BindOptions, DEFAULT_HEARTBEAT_MS, DEFAULT_LIMITS, type Limits } from "./types.js";
import { type ConnectionListener, type ZmtpConnectionOptions, ZmtpConnection } from "./zmtp-connection.js";

/** What stands on one connection. */
export type PeerListener = Omit<ConnectionListener, "faulty">;

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
  const { host, heartbeatMs = DEFAULT_HEARTBEAT_MS, onPeerError: complain = () => {} } = options;
  const limits: Limits = { ...DEFAULT_LIMITS, ...options.limits };
  const full: ZmtpConnectionOptions = { ...side, bound: true, limits, ...(options.plain === undefined ? {} : { plain: options.plain }) };
  const connections = new Set<ZmtpConnection>();
  const server = createServer((socket) => {
    const address = socket.remoteAddress ?? "unknown";
    if (connections.size >= limits.peers) {
      socket.on("error", () => {});
      socket.destroy();
      complain(address, "LABORO_TOO_MANY_PEERS", `${limits.peers} peers are connected already`);
      return;
    }
    const session = accept(() => connection, address);
    const connection: ZmtpConnection = new ZmtpConnection(socket, full, {
      ...session,
      protocolError: ({ code, message }) => complain(address, code, message),
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
    throw new LaboroError("LABORO_BAD_INPUT", `cannot listen on tcp://${inUrl(host)}:${options.port}: ${why}`, {
      cause,
    });
  });
  server.on("error", (error) => complain(host, "LABORO_INTERNAL", `the listening socket failed: ${error.message}`));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : options.port;
  const heart = setInterval(() => {
    for (const connection of connections) connection.beat(heartbeatMs);
  }, heartbeatMs);
  return {
    url: `tcp://${inUrl(host)}:${port}`,
    port,
    close: () =>
      new Promise((resolve) => {
        clearInterval(heart);
        const patience = setTimeout(() => {
          for (const connection of connections) connection.destroy("the socket was closed");
        }, CLOSE_TIMEOUT_MS);
        server.close(() => {
          clearTimeout(patience);
          resolve();
        });
        for (const connection of connections) connection.end();
      }),
  };
}
