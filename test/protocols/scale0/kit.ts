/** A broker with a Scale0 listener, and peers that are nothing but sockets of the `zeromq` package: what they say is written out here. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Dealer, Request, Router, Subscriber } from "zeromq";
import type { RunningBroker, ServerOptions } from "../../../src/broker/options.js";
import { type Client, connect } from "../../../src/entries/client.js";
import { startBroker } from "../../../src/server.js";
import { atEnd } from "../../support/at-end.js";

export { atEnd };

export type Said = readonly [command: string, parameters: Record<string, unknown>, ...body: string[]];

export interface Scale0Broker {
  readonly dir: string;
  readonly broker: RunningBroker;
  readonly client: Client;
  readonly clients: string;
  readonly workers: string;
  readonly published: string;
  /** Kills nothing gently: for a broker that goes while others look. */
  stop(): Promise<void>;
}

export async function openScale0(options: Partial<ServerOptions> = {}): Promise<Scale0Broker> {
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "laboro-scale0-"));
  if (options.dir === undefined) atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const listeners = [{ name: "scale0" as const, host: "127.0.0.1", ports: [0, 0, 0] }];
  const broker = await startBroker({ port: 0, listeners, ...options, dir: join(dir, "data") });
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => {
    stopped ??= broker.stop();
    return stopped;
  };
  atEnd(stop);
  const client = await connect({ broker: broker.url, token: broker.token });
  atEnd(() => client.close());
  const [clients = "", workers = "", published = ""] = broker.listeners[0]?.urls ?? [];
  return { dir, broker, client, clients, workers, published, stop };
}

type Socket = Dealer | Request;

/** Says and hears, each with a deadline. */
export class Literal {
  readonly socket: Socket;
  #closed = false;

  constructor(socket: Socket, url: string) {
    this.socket = socket;
    socket.connect(url);
    atEnd(() => this.close());
  }

  async say(command: string, parameters: unknown = {}, ...body: (string | Uint8Array)[]): Promise<void> {
    await this.sayFrames(command, JSON.stringify(parameters), ...body);
  }

  async sayFrames(...frames: (string | Uint8Array)[]): Promise<void> {
    await this.socket.send(frames);
  }

  async hearFrames(): Promise<Buffer[]> {
    return this.socket.receive();
  }

  async hear(): Promise<Said> {
    const [command = Buffer.alloc(0), parameters = Buffer.alloc(0), ...body] = await this.hearFrames();
    return [command.toString(), JSON.parse(parameters.toString()) as Record<string, unknown>, ...body.map(String)];
  }

  /** Passes over what else is said. */
  async hearOf(command: string): Promise<Said> {
    for (;;) {
      const said = await this.hear();
      if (said[0] === command) return said;
    }
  }

  async ask(command: string, parameters: unknown = {}, ...body: (string | Uint8Array)[]): Promise<Said> {
    await this.say(command, parameters, ...body);
    return this.hear();
  }

  /** Nothing comes for so long. */
  async silent(ms: number): Promise<boolean> {
    const before = this.socket.receiveTimeout;
    this.socket.receiveTimeout = ms;
    try {
      await this.socket.receive();
      return false;
    } catch {
      return true;
    } finally {
      this.socket.receiveTimeout = before;
    }
  }

  close(): void {
    if (!this.#closed) this.socket.close();
    this.#closed = true;
  }
}

const RECEIVE_MS = 20_000;

export const dealer = (url: string, routingId?: string): Literal =>
  new Literal(
    new Dealer({ linger: 0, receiveTimeout: RECEIVE_MS, ...(routingId === undefined ? {} : { routingId }) }),
    url,
  );

export const req = (url: string, routingId?: string): Literal =>
  new Literal(
    new Request({ linger: 0, receiveTimeout: RECEIVE_MS, ...(routingId === undefined ? {} : { routingId }) }),
    url,
  );

/** A REQ socket that matches answers to what it said, and need not wait for them. */
export const numbering = (url: string): Literal =>
  new Literal(new Request({ linger: 0, receiveTimeout: RECEIVE_MS, correlate: true, relaxed: true }), url);

export const subscriber = (url: string, ...topics: string[]): Subscriber => {
  const socket = new Subscriber({ linger: 0, receiveTimeout: RECEIVE_MS });
  socket.connect(url);
  socket.subscribe(...topics);
  atEnd(() => socket.close());
  return socket;
};

/** A socket that others connect to. */
export async function router(): Promise<{ readonly url: string; hear(): Promise<string[]> }> {
  const socket = new Router({ linger: 0, receiveTimeout: RECEIVE_MS });
  await socket.bind("tcp://127.0.0.1:*");
  atEnd(() => socket.close());
  return { url: socket.lastEndpoint ?? "", hear: async () => (await socket.receive()).map(String) };
}

export interface WorkerStart {
  readonly services?: readonly string[];
  readonly slots?: number;
  readonly more?: Record<string, unknown>;
}

/** A worker through its startup, as far as the PONG that says it is registered. */
export async function startedWorker(
  setup: Pick<Scale0Broker, "workers">,
  identity: string,
  start: WorkerStart = {},
): Promise<Literal> {
  const { services = ["echo"], slots, more = {} } = start;
  const worker = dealer(setup.workers, identity);
  const [, { config_version }] = await worker.ask("CONNECT", { config_type: "JSON", services, slots, ...more });
  const pong = await worker.ask("PING", { heartbeat_interval: 10_000, time: Date.now(), config_version });
  if (pong[0] !== "PONG") throw new Error(`expected PONG, got ${pong[0]}`);
  return worker;
}

/** Answers one request with its own body, and says that it is ready for the next. */
export async function answerOne(worker: Literal, answer?: string): Promise<Said> {
  const said = await worker.hearOf("WORKREQUEST");
  const [, { work_request_identifier }, ...body] = said;
  await worker.say("WORKREPLY", { work_request_identifier }, ...(answer === undefined ? body : [answer]));
  await worker.say("PING", { time: Date.now() });
  return said;
}
