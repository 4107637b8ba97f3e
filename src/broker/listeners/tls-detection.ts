/** Plain HTTP and TLS on one port: a TLS connection begins with the byte 0x16, and no method of HTTP does. */
import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Server as TlsServer } from "node:tls";
import type { ListenerGuard } from "../../base/connection-guard.js";
import type { CertificatePair } from "../access/certificates.js";

const TLS_HANDSHAKE = 0x16;

/**
 * Lets an HTTP server accept only what the guard admits, and TLS connections too. `certificate` is called when a connection needs it;
 * without it there is no TLS. From here on the server sees a connection only after its first byte has arrived, and decrypted if it is
 * TLS. The guard destroys a connection whose first byte or handshake does not come.
 */
export function acceptConnections(
  server: Server,
  guard: ListenerGuard,
  certificate: (() => Promise<CertificatePair>) | undefined,
): void {
  const listeners = server.listeners("connection") as ((socket: Socket) => void)[];
  const plain = (socket: Socket): void => {
    for (const listener of listeners) listener.call(server, socket);
  };
  const encrypted = certificate === undefined ? undefined : tlsBefore(plain, certificate);
  server.removeAllListeners("connection");
  server.on("connection", (socket: Socket) => {
    if (!guard.admit(socket)) return;
    if (encrypted === undefined) {
      plain(socket);
      return;
    }
    const leave = (): void => void socket.destroy();
    socket.once("error", leave);
    socket.once("data", (chunk: Buffer) => {
      socket.pause();
      socket.off("error", leave);
      socket.unshift(chunk);
      if (chunk[0] === TLS_HANDSHAKE) {
        encrypted(socket);
      } else {
        plain(socket);
        // After the server has attached its handlers, and before the next bytes from the network.
        process.nextTick(() => socket.resume());
      }
    });
  });
}

/** The server of TLS is made for the first connection: to make it takes longer than all else at the start of a broker. */
function tlsBefore(
  accept: (socket: Socket) => void,
  certificate: () => Promise<CertificatePair>,
): (socket: Socket) => void {
  let current: CertificatePair | undefined;
  let server: TlsServer | undefined;
  return (socket) => {
    socket.on("error", () => socket.destroy());
    Promise.all([certificate(), import("node:tls")]).then(
      ([pair, tls]) => {
        server ??= tls
          .createServer({ ALPNProtocols: ["http/1.1"] })
          .on("secureConnection", accept)
          .on("tlsClientError", (_error, refused) => refused.destroy());
        if (pair !== current) server.setSecureContext({ ...pair, minVersion: "TLSv1.2" });
        current = pair;
        server.emit("connection", socket);
      },
      // Logged where it was made.
      () => socket.destroy(),
    );
  };
}
