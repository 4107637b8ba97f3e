/** Sockets of a test: what is opened here is closed after it. */
import { connect, type Socket } from "node:net";
import { Context, Dealer, Request, Router as ZmqRouter, type Socket as ZmqSocket } from "zeromq";
import type { ErrorCode } from "../../../src/base/errors.js";
import { openRouter, type Peer, type Router, type RouterOptions } from "../../../src/protocols/zeromq/index.js";
import { atEnd } from "../../support/at-end.js";

export { atEnd };

export interface Heard {
  readonly router: Router;
  readonly messages: { readonly peer: Peer; readonly frames: string[] }[];
  readonly joined: string[];
  readonly left: string[];
  readonly complaints: { readonly address: string; readonly code: ErrorCode; readonly why: string }[];
}

/** laboro's own router that keeps what it hears, and answers a message whose first frame is `echo`. */
export async function heardRouter(options: Partial<RouterOptions> = {}): Promise<Heard> {
  const heard: Omit<Heard, "router"> = { messages: [], joined: [], left: [], complaints: [] };
  const router: Router = await openRouter(
    {
      host: "127.0.0.1",
      port: 0,
      onPeerError: (address, code, why) => heard.complaints.push({ address, code, why }),
      ...options,
    },
    {
      message: (peer, frames) => {
        heard.messages.push({ peer, frames: frames.map((frame) => frame.toString("latin1")) });
        if (frames.some((frame) => frame.toString() === "echo")) router.send(peer.key, frames);
      },
      joined: ({ key }) => heard.joined.push(key),
      left: ({ key }) => heard.left.push(key),
    },
  );
  atEnd(() => router.close());
  return { ...heard, router };
}

/** Sockets of the zeromq package, in a context of their own. */
export function zmq<T extends ZmqSocket>(make: (context: Context) => T): T {
  const socket = make(new Context());
  atEnd(() => socket.close());
  return socket;
}

export const dealer = (url: string, options: object = {}): Dealer => {
  const socket = zmq((context) => new Dealer({ context, linger: 0, receiveTimeout: 20_000, ...options }));
  socket.connect(url);
  return socket;
};

export const requester = (url: string): Request => {
  const socket = zmq((context) => new Request({ context, linger: 0, receiveTimeout: 20_000 }));
  socket.connect(url);
  return socket;
};

export const peerRouter = (options: object = {}): ZmqRouter =>
  zmq((context) => new ZmqRouter({ context, linger: 0, receiveTimeout: 20_000, ...options }));

/** A TCP connection with nothing on it. */
export async function raw(port: number): Promise<{ socket: Socket; received: () => Buffer; closed: () => boolean }> {
  const socket = connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  let closed = false;
  socket.on("error", () => {});
  socket.on("data", (chunk) => chunks.push(chunk));
  socket.on("close", () => {
    closed = true;
  });
  atEnd(() => void socket.destroy());
  await new Promise((resolve) => socket.once("connect", resolve));
  return { socket, received: () => Buffer.concat(chunks), closed: () => closed };
}
