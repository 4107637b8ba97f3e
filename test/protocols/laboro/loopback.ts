/** Real sockets on loopback for tests of the link: a listener, a proxy that mistreats bytes. */
import { createServer, type IncomingMessage, type Server } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import { SERVER_OPTIONS } from "../../../src/protocols/laboro/connection.js";

export interface Listener {
  readonly port: number;
  readonly url: string;
  /** Ends every connection without a goodbye, as a killed process would. */
  readonly close: () => Promise<void>;
}

export interface ListenOptions {
  readonly port?: number;
  readonly onConnection?: (socket: WebSocket, request: IncomingMessage) => void;
  /** Answers the upgrade by hand. */
  readonly onUpgrade?: (request: IncomingMessage, socket: Duplex) => void;
}

export async function listen(options: ListenOptions): Promise<Listener> {
  const sockets = new Set<Socket>();
  const webSockets = new WebSocketServer(SERVER_OPTIONS);
  const server = createServer();
  server.on("connection", (socket) => track(sockets, socket));
  server.on("upgrade", (request, socket, head) => {
    if (options.onUpgrade !== undefined) options.onUpgrade(request, socket);
    else webSockets.handleUpgrade(request, socket, head, (opened) => options.onConnection?.(opened, request));
  });
  const port = await opened(server, options.port ?? 0);
  return { port, url: `ws://127.0.0.1:${port}`, close: () => closed(server, sockets) };
}

export interface Between extends Listener {
  /** What becomes of bytes on their way; undefined for nothing at all. */
  up: Passage;
  down: Passage;
  /** Sends bytes of our own up the connection that was made last. */
  readonly release: (bytes: Buffer) => void;
  /** Reads no more from the listener. */
  readonly stall: () => void;
}

type Passage = ((bytes: Buffer) => Iterable<Buffer>) | undefined;

export const unchanged = (bytes: Buffer): Buffer[] => [bytes];

/** Pieces of 1 to `most` bytes. */
export function* inPieces(bytes: Buffer, most: number): Iterable<Buffer> {
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + Math.floor(Math.random() * most);
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

/** Between a dialler and a listener: `up` is towards the listener. */
export async function proxyTo(target: number): Promise<Between> {
  const sockets = new Set<Socket>();
  let latest: Socket | undefined;
  const server = createTcpServer((near) => {
    const far = connect(target, "127.0.0.1");
    latest = far;
    for (const socket of [near, far]) {
      track(sockets, socket);
      socket.setNoDelay(true);
      socket.on("error", () => {});
    }
    near.on("data", (bytes) => pass(proxy.up, bytes, far));
    far.on("data", (bytes) => pass(proxy.down, bytes, near));
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  });
  const port = await opened(server, 0);
  const proxy: Between = {
    port,
    url: `ws://127.0.0.1:${port}`,
    up: unchanged,
    down: unchanged,
    release: (bytes) => latest?.write(bytes),
    stall: () => latest?.pause(),
    close: () => closed(server, sockets),
  };
  return proxy;
}

/** Each piece is a write, and mostly a packet, of its own. */
function pass(passage: Passage, bytes: Buffer, to: Socket): void {
  if (passage === undefined) return;
  for (const piece of passage(bytes)) to.write(piece);
}

function track(sockets: Set<Socket>, socket: Socket): void {
  sockets.add(socket);
  socket.on("close", () => sockets.delete(socket));
}

function opened(server: Server | ReturnType<typeof createTcpServer>, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve((server.address() as AddressInfo).port));
  });
}

function closed(server: Server | ReturnType<typeof createTcpServer>, sockets: Set<Socket>): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    for (const socket of sockets) socket.destroy();
  });
}
