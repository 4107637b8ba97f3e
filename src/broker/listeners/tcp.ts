/** A listener on a plain TCP port: it accepts peers and closes. The protocol's session does the rest. */
import { createServer, type Socket } from "node:net";
import { inUrl } from "../../base/addresses.js";
import { badInput, errnoOf } from "../../base/errors.js";
import type { Listener, ListenerAddress, ListenerContext, ListenerName } from "./listener.js";

/** A connected peer, as the listener sees it. */
export interface TcpPeer {
  /** The broker or the listener closes: say goodbye as the protocol has it, then end the socket. */
  shutdown(): void;
}

/** How long to wait for peers to close. */
const CLOSE_TIMEOUT_MS = 200;

export async function openTcpListener(
  name: ListenerName,
  { log, guard: connections }: Pick<ListenerContext, "log" | "guard">,
  { host, ports: [port = 0] }: ListenerAddress,
  /** `greeted`: the peer has said who it is. */
  accept: (socket: Socket, address: string, greeted: () => void) => TcpPeer,
): Promise<Listener> {
  const guard = connections.of(name);
  const peers = new Map<Socket, TcpPeer>();
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 }, (socket) => {
    const address = socket.remoteAddress ?? "unknown";
    // A broken connection is not an error: the session notices its end.
    socket.on("error", () => socket.destroy());
    if (!guard.admit(socket)) return;
    socket.once("close", () => peers.delete(socket));
    peers.set(
      socket,
      accept(socket, address, () => guard.authenticated(socket)),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      server.on("error", (error) => log.error({ listener: name, error: error.message }, "the listener failed"));
      resolve();
    });
  }).catch((cause: unknown) => {
    const why = errnoOf(cause) === "EADDRINUSE" ? "something else listens there" : String(cause);
    throw badInput(`cannot open the ${name} listener on ${host}:${port}: ${why}`, cause);
  });
  const address = server.address();
  const open = typeof address === "object" && address !== null ? address.port : port;
  return {
    urls: [`tcp://${inUrl(host)}:${open}`],
    close: () =>
      new Promise((resolve) => {
        const deadline = setTimeout(() => {
          for (const socket of peers.keys()) socket.destroy();
        }, CLOSE_TIMEOUT_MS);
        server.close(() => {
          clearTimeout(deadline);
          resolve();
        });
        for (const peer of peers.values()) peer.shutdown();
      }),
  };
}
