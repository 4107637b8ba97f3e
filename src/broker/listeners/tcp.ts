/** A door on a plain TCP stream: listening, the peers that are there, and the end. The protocol's session does the rest. */
import { createServer, type Socket } from "node:net";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { inUrl } from "../../base/addresses.js";
import type { Listener, ListenerContext, ListenerName, ListenerAddress } from "./listener.js";

/** What a door keeps of a peer. */
export interface TcpPeer {
  /** The broker stops, or the door does: say what the protocol has for it, then end the socket. */
  shutdown(): void;
}

/** How long a goodbye is waited for. */
const CLOSE_TIMEOUT_MS = 200;
/** Peers of one door at one time. */
const MOST_PEERS = 20_000;

export async function openTcpListener(
  name: ListenerName,
  { log, peerErrors: complaints }: Pick<ListenerContext, "log" | "complaints">,
  { host, ports: [port = 0] }: ListenerAddress,
  accept: (socket: Socket, address: string) => TcpPeer,
): Promise<Listener> {
  const peers = new Map<Socket, TcpPeer>();
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 }, (socket) => {
    const address = socket.remoteAddress ?? "unknown";
    // That a connection broke is no news: whoever has something to lose by it hears of its end.
    socket.on("error", () => socket.destroy());
    if (peers.size >= MOST_PEERS) {
      complaints.report(name, address, "LABORO_TOO_MANY_PEERS", `${MOST_PEERS} peers are connected already`);
      socket.destroy();
      return;
    }
    socket.once("close", () => peers.delete(socket));
    peers.set(socket, accept(socket, address));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      server.on("error", (error) => log.error({ door: name, error: error.message }, "the door failed"));
      resolve();
    });
  }).catch((cause: unknown) => {
    const why = errnoOf(cause) === "EADDRINUSE" ? "something else listens there" : String(cause);
    throw new LaboroError("LABORO_BAD_INPUT", `cannot open door ${name} on ${host}:${port}: ${why}`, { cause });
  });
  const address = server.address();
  const open = typeof address === "object" && address !== null ? address.port : port;
  return {
    urls: [`tcp://${inUrl(host)}:${open}`],
    close: () =>
      new Promise((resolve) => {
        const patience = setTimeout(() => {
          for (const socket of peers.keys()) socket.destroy();
        }, CLOSE_TIMEOUT_MS);
        server.close(() => {
          clearTimeout(patience);
          resolve();
        });
        for (const peer of peers.values()) peer.shutdown();
      }),
  };
}
