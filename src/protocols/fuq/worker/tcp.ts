/** A foreman on a raw stream. */
import { connect, type Socket } from "node:net";
import { badInput, LaboroError } from "../../../base/errors.js";
import { Framer, type Layout } from "../framer.js";
import type { Connect } from "./transport.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** TCP keep-alive for a foreman that is silent for so long. */
const KEEP_ALIVE_MS = 30_000;

/** How long to wait for the peer to close its side. */
const CLOSE_TIMEOUT_MS = 1_000;

/** `HOST:PORT`, an IPv6 address in brackets. */
export function parseAddress(text: string, option: string): Address {
  const [, v6, host = v6, port] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text) ?? [];
  if (host !== undefined && port !== undefined && Number(port) <= 65_535) return { host, port: Number(port) };
  throw badInput(`${option}: expected HOST:PORT, got ${text}`);
}

/** `layout` says where a message ends. */
export const tcpConnector =
  ({ host, port }: Address, layout: Layout, limit: number): Connect =>
  (events, signal) =>
    new Promise((resolve, reject) => {
      const socket: Socket = connect({ host, port, signal });
      const failed = (cause: Error): void =>
        reject(
          new LaboroError("LABORO_BROKER_UNREACHABLE", `${host}:${port} cannot be reached: ${cause.message}`, {
            cause,
          }),
        );
      socket.once("error", failed);
      socket.once("connect", () => {
        socket.off("error", failed);
        socket.setNoDelay(true);
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
        let why = "it closed the connection";
        const framer = new Framer(layout, limit);
        socket.on("error", (cause) => {
          why = cause.message;
        });
        socket.on("data", (chunk) => {
          const { messages, failure } = framer.push(chunk);
          for (const message of messages) if (!socket.destroyed) events.message(message);
          if (failure === undefined) return;
          why = failure.message;
          socket.destroy();
        });
        socket.on("close", () => events.closed(why));
        resolve({
          send: (bytes) => void socket.write(bytes),
          close: () => {
            socket.end();
            setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS).unref();
          },
        });
      });
    });
