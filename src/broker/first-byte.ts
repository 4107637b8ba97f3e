/** Plain HTTP and TLS on one port: a TLS connection begins with the byte 0x16, and no method of HTTP does. */
import type { Server } from "node:http";
import type { Socket } from "node:net";
import { createServer } from "node:tls";
import type { Pair } from "./certificates.js";

const TLS_HANDSHAKE = 0x16;

/**
 * Lets an HTTP server take TLS connections too. `certificate` is asked for when a connection needs it. From here on the server's
 * own listener sees a connection once its first byte is known, decrypted where need be. One on which no byte or no handshake comes in
 * time is closed.
 */
export function sharePort(server: Server, certificate: () => Promise<Pair>, timeoutMs: number): void {
  const listeners = server.listeners("connection") as ((socket: Socket) => void)[];
  const plain = (socket: Socket): void => {
    for (const listener of listeners) listener.call(server, socket);
  };
  const encrypted = tlsBefore(plain, certificate, timeoutMs);
  server.removeAllListeners("connection");
  server.on("connection", (socket: Socket) => {
    const silent = setTimeout(() => socket.destroy(), timeoutMs);
    const leave = (): void => void socket.destroy();
    socket.once("error", leave);
    socket.once("close", () => clearTimeout(silent));
    socket.once("data", (chunk: Buffer) => {
      clearTimeout(silent);
      socket.pause();
      socket.off("error", leave);
      socket.unshift(chunk);
      if (chunk[0] === TLS_HANDSHAKE) {
        encrypted(socket);
      } else {
        plain(socket);
        // Not before the server listens, and not later than what comes next from the network.
        process.nextTick(() => socket.resume());
      }
    });
  });
}

function tlsBefore(
  accept: (socket: Socket) => void,
  certificate: () => Promise<Pair>,
  handshakeTimeout: number,
): (socket: Socket) => void {
  let shown: Pair | undefined;
  const tls = createServer({ handshakeTimeout, ALPNProtocols: ["http/1.1"] });
  tls.on("secureConnection", accept);
  tls.on("tlsClientError", (_error, socket) => socket.destroy());
  return (socket) => {
    socket.on("error", () => socket.destroy());
    certificate().then(
      (pair) => {
        if (pair !== shown) tls.setSecureContext({ ...pair, minVersion: "TLSv1.2" });
        shown = pair;
        tls.emit("connection", socket);
      },
      // It has been logged where it was made.
      () => socket.destroy(),
    );
  };
}
