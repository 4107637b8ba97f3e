/** A broker that is nothing but a ROUTER socket of the `zeromq` package: what it says is written out in the tests. */
import { Router } from "zeromq";
import { atEnd, type Said } from "./kit.js";

export class LiteralBroker {
  readonly #socket = new Router({ linger: 0, receiveTimeout: 20_000, mandatory: true });
  #url = "";
  #peer = Buffer.alloc(0);

  static async open(): Promise<LiteralBroker> {
    const broker = new LiteralBroker();
    await broker.#socket.bind("tcp://127.0.0.1:*");
    broker.#url = broker.#socket.lastEndpoint ?? "";
    atEnd(() => broker.close());
    return broker;
  }

  /** Who spoke last. */
  get peer(): string {
    return this.#peer.toString();
  }

  get url(): string {
    return this.#url;
  }

  async hear(): Promise<Said> {
    const [peer, command, parameters, ...body] = await this.#socket.receive();
    this.#peer = Buffer.from(peer ?? "");
    return [String(command), JSON.parse(String(parameters)) as Record<string, unknown>, ...body.map(String)];
  }

  /** The parameters as they were written. */
  async hearText(): Promise<string> {
    const [peer, , parameters] = await this.#socket.receive();
    this.#peer = Buffer.from(peer ?? "");
    return String(parameters);
  }

  async sayText(command: string, parameters: string): Promise<void> {
    await this.#socket.send([this.#peer, command, parameters]);
  }

  /** Passes over heartbeats and the like. */
  async hearOf(command: string): Promise<Said> {
    for (;;) {
      const said = await this.hear();
      if (said[0] === command) return said;
    }
  }

  async say(command: string, parameters: object = {}, ...body: string[]): Promise<void> {
    await this.#socket.send([this.#peer, command, JSON.stringify(parameters), ...body]);
  }

  /** CONNECT, CONFIG, PING, PONG. */
  async welcome(config: object = {}, version = 1): Promise<void> {
    await this.hearOf("CONNECT");
    await this.say("CONFIG", { config_type: "JSON", config_version: version }, JSON.stringify(config));
    await this.hearOf("PING");
    await this.say("PONG", { config_version: version });
  }

  close(): void {
    if (!this.#socket.closed) this.#socket.close();
  }
}

export const freshEntry = (identity: string, url: string) => ({ identity, worker_uri: url, client_uri: url });
