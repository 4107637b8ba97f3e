/** A broker with the round-robin listener open, and peers written from the frame table with sockets of ZeroMQ, as the originals are. */

import { Context, Router as ZmqRouter } from "zeromq";
import { type Log, PeerErrors } from "../../../src/base/log.js";
import { TracedConnections } from "../../../src/base/traced-connections.js";
import type { ListenerSettings } from "../../../src/broker/listeners/listener.js";
import type { ServerOptions } from "../../../src/broker/options.js";
import { openRoundRobinListener, type RoundRobinListener } from "../../../src/protocols/round-robin/broker/listener.js";
import type { HeartbeatLimits } from "../../../src/protocols/round-robin/broker/worker-table.js";
import { atEnd } from "../../support/at-end.js";
import { freePort } from "../../support/free-port.js";
import { openTestBroker, type TestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";

export { atEnd };

export interface Place {
  readonly setup: TestBroker;
  readonly listener: RoundRobinListener;
  readonly url: string;
  readonly conversations: TracedConnections;
  readonly logged: { readonly level: string; readonly fields: Record<string, unknown>; readonly text: string }[];
}

export interface PlaceOptions {
  readonly settings?: ListenerSettings;
  readonly broker?: Partial<ServerOptions>;
  readonly port?: number;
  readonly settleMs?: number;
  readonly patience?: HeartbeatLimits;
}

export async function openPlace({
  settings = {},
  broker = {},
  port,
  settleMs = 0,
  patience,
}: PlaceOptions = {}): Promise<Place> {
  const logged: Place["logged"] = [];
  const at = (level: string) => (fields: object, text: string) =>
    void logged.push({ level, fields: { ...fields }, text });
  const log: Log = { info: at("info"), warn: at("warn"), error: at("error") };
  const setup = await openTestBroker(broker);
  const conversations = new TracedConnections();
  const context = {
    core: setup.broker.core,
    guard: setup.broker.guard,
    log,
    peerErrors: new PeerErrors(log),
    connections: conversations,
    settings,
  };
  const listener = await openRoundRobinListener(
    context,
    { host: "127.0.0.1", ports: [port ?? (await freePort())] },
    { joinDelayMs: settleMs, ...(patience && { heartbeatLimits: patience }) },
  );
  atEnd(() => listener.close());
  return { setup, listener, url: listener.urls[0] ?? "", conversations, logged };
}

/** A frame in a test: text, or bytes in hexadecimal after `0x`. */
export type Frame = string;

export const E = "";
export const V = "LMQv100";
export const bytesOf = (frame: Frame): Buffer =>
  frame.startsWith("0x") ? Buffer.from(frame.slice(2), "hex") : Buffer.from(frame, "latin1");
const frameOf = (bytes: Buffer): Frame => {
  const text = bytes.toString("latin1");
  return /^[\x20-\x7e]*$/.test(text) ? text : `0x${bytes.toString("hex")}`;
};

export const PING = "0x01";
export const PONG = "0x02";
export const EXEC = "0x03";
export const TRACKEXEC = "0x04";
export const TRACKADDRESS = "0x05";
export const RESPONSE = "0x06";
export const INCREMENT = "0x07";
export const REGISTER = "0x08";
export const DEREGISTER = "0x09";
export const STREAM = "0x0a";
export const FAILURE = "0x2800";
/** A packet of a stream that says that it was aborted. */
export const ABORTED = `0x315208${"00".repeat(8)}`;

/** A ROUTER with ROUTER_MANDATORY that knows the server by the text that it connects with. */
export class LiteralPeer {
  readonly identity: string;
  readonly #socket: ZmqRouter;
  readonly #server: string;
  readonly #got: Frame[][] = [];

  constructor(url: string, identity = `${url}:${1 + Math.floor(Math.random() * 1_000_000)}`, server = url) {
    this.identity = identity;
    this.#server = server;
    this.#socket = new ZmqRouter({
      context: new Context(),
      routingId: identity,
      mandatory: true,
      sendTimeout: 0,
      linger: 0,
    });
    this.#socket.connect(url);
    atEnd(() => this.close());
    void this.#hear().catch(() => {});
  }

  /** All that came and was not taken yet. */
  get got(): readonly Frame[][] {
    return this.#got;
  }

  async send(...frames: readonly Frame[]): Promise<void> {
    await this.sendBytes(...frames.map(bytesOf));
  }

  /** Tried until the connection is there: before, the server is unknown to this socket. */
  async sendBytes(...frames: readonly Buffer[]): Promise<void> {
    await until("the server is known by its name", () =>
      this.#socket.send([this.#server, ...frames]).then(
        () => true,
        () => false,
      ),
    );
  }

  /** The next message, without the server's name in front. */
  async next(): Promise<Frame[]> {
    return until(`${this.identity} gets a message`, () => this.#got.shift());
  }

  takeAll(): Frame[][] {
    return this.#got.splice(0);
  }

  async greet(id = "0x0300000000000000"): Promise<void> {
    await this.send(E, V, PING, id, E);
    const answer = await this.next();
    if (JSON.stringify(answer) !== JSON.stringify([E, V, PONG, id, E])) {
      throw new Error(`the first message is not the PONG: ${JSON.stringify(answer)}`);
    }
  }

  async register(slots = "10"): Promise<void> {
    await this.send(E, V, TRACKEXEC, "0x00000000", REGISTER, slots, E);
    const answer = await this.next();
    if (JSON.stringify(answer) !== JSON.stringify([E, V, RESPONSE, "0x00000000", E])) {
      throw new Error(`not the answer to REGISTER: ${JSON.stringify(answer)}`);
    }
  }

  close(): void {
    if (!this.#socket.closed) this.#socket.close();
  }

  async #hear(): Promise<void> {
    for await (const [from, ...frames] of this.#socket) {
      if (from?.toString() !== this.#server) throw new Error(`the server calls itself ${from?.toString()}`);
      this.#got.push(frames.map(frameOf));
    }
  }
}

export async function greeted(url: string, identity?: string): Promise<LiteralPeer> {
  const peer = new LiteralPeer(url, identity);
  await peer.greet();
  return peer;
}

export async function registered(place: Place, slots?: string, identity?: string): Promise<LiteralPeer> {
  const worker = await greeted(place.url, identity);
  await worker.register(slots);
  await until("it is in the worker table", () =>
    place.listener.server.workers().some(({ address }) => address === worker.identity),
  );
  return worker;
}

/** Free slots of a worker in the table. */
export const freeOf = (place: Place, worker: LiteralPeer): number | undefined =>
  place.listener.server.workers().find(({ address }) => address === worker.identity)?.freeSlots;

/** Counters as the originals make them. */
export const id8 = (number: number): Frame => {
  const id = Buffer.alloc(8);
  id.writeBigUInt64LE(BigInt(number));
  return `0x${id.toString("hex")}`;
};

/** A ROUTER whose identity is the text that peers connect with, and nothing behind it. */
export class LiteralServer {
  readonly url: string;
  readonly #socket: ZmqRouter;
  readonly #got: Frame[][] = [];

  private constructor(url: string, socket: ZmqRouter) {
    this.url = url;
    this.#socket = socket;
    void this.#hear().catch(() => {});
  }

  static async open(): Promise<LiteralServer> {
    const url = `tcp://127.0.0.1:${await freePort()}`;
    const socket = new ZmqRouter({
      context: new Context(),
      routingId: url,
      mandatory: true,
      sendTimeout: 0,
      linger: 0,
    });
    await socket.bind(url);
    atEnd(() => socket.close());
    return new LiteralServer(url, socket);
  }

  /** Messages that came and were not taken yet. */
  get waiting(): number {
    return this.#got.length;
  }

  /** The first frame is the peer's identity. */
  async send(...frames: readonly Frame[]): Promise<void> {
    await this.#socket.send(frames.map(bytesOf));
  }

  async next(): Promise<Frame[]> {
    return until("the server gets a message", () => this.#got.shift());
  }

  /** Answers the handshake, and gives who it was. */
  async greet(): Promise<string> {
    const [who = "", , , , id = ""] = await this.next();
    await this.send(who, E, V, PONG, id, E);
    return who;
  }

  /** Answers handshake and REGISTER. */
  async welcome(): Promise<string> {
    const who = await this.greet();
    const [, , , , id = ""] = await this.next();
    await this.send(who, E, V, RESPONSE, id, E);
    return who;
  }

  async #hear(): Promise<void> {
    for await (const frames of this.#socket) this.#got.push(frames.map(frameOf));
  }
}
