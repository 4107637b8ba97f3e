/** A client of a round-robin server, laboro's or an original. */
import { LaboroError } from "../../../base/errors.js";
import { id4, id8, type Message, MQS_MORE, ONGOING, PING_ARGUMENT, STREAM } from "../frames.js";
import { StreamReader } from "../stream.js";
import { RoundRobinLink, type RoundRobinLinkOptions } from "./link.js";

interface RoundRobinClientOptions extends RoundRobinLinkOptions {
  /** For an answer. */
  readonly timeoutMs?: number;
  /** For a connection. */
  readonly connectMs?: number;
}

const TIMEOUT_MS = 15_000;
const CONNECT_MS = 10_000;
const MAX_STREAM_BYTES = 1024 * 1024 * 1024;
const HOST_ID = Buffer.from("STREAM_ID");

export class RoundRobinClient {
  readonly #link: RoundRobinLink;
  readonly #options: RoundRobinClientOptions;

  private constructor(link: RoundRobinLink, options: RoundRobinClientOptions) {
    this.#link = link;
    this.#options = options;
  }

  /** Does not wait for the connection; requests do. */
  static async open(options: RoundRobinClientOptions): Promise<RoundRobinClient> {
    return new RoundRobinClient(await RoundRobinLink.open(options, {}), options);
  }

  get identity(): string {
    return this.#link.identity;
  }

  whenReady(): Promise<void> {
    return this.#link.whenReady(this.#options.connectMs ?? CONNECT_MS);
  }

  /** EXEC has no answer. */
  async exec(command: Uint8Array, ...args: readonly Uint8Array[]): Promise<void> {
    await this.whenReady();
    const sent = this.#link.send({ command: "EXEC", id: id8(this.#link.nextId()), args: [command, ...args] });
    if (!sent) throw new LaboroError("LABORO_BROKER_GONE", `no connection to ${this.#options.url}`);
  }

  /** TRACKEXEC: resolves with its RESPONSE. */
  async trackexec(command: Uint8Array, ...args: readonly Uint8Array[]): Promise<Message> {
    await this.whenReady();
    return this.#track([], [command, ...args]);
  }

  ping(): Promise<void> {
    return this.exec(PING_ARGUMENT);
  }

  /** TRACKEXEC PING: the worker that answered. */
  async pingTracked(): Promise<string> {
    const { returnPath } = await this.trackexec(PING_ARGUMENT);
    return returnPath.at(-1)?.toString("latin1") ?? "";
  }

  /** STREAM: all of its data. Packets after the first come from the worker that sent the first. */
  async stream(size: number, hostId: Uint8Array = HOST_ID): Promise<Buffer> {
    const reader = new StreamReader(MAX_STREAM_BYTES);
    let answer = await this.trackexec(STREAM, hostId, Buffer.from(String(size)));
    for (;;) {
      const taken = reader.take(answer.args[0]);
      if (taken instanceof Uint8Array) return taken;
      answer = await this.#track(answer.returnPath.toReversed(), [MQS_MORE, hostId, taken.next, Buffer.from("0")]);
    }
  }

  /** The reader of a stream is still alive. */
  async ongoing(worker: string, hostId: Uint8Array = HOST_ID): Promise<void> {
    await this.whenReady();
    await this.#track([Buffer.from(worker, "latin1")], [ONGOING, hostId]);
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  #track(to: readonly Uint8Array[], args: readonly Uint8Array[]): Promise<Message> {
    const number = this.#link.nextId();
    // Ids are opaque; these have the width of the original's.
    const id = args[0] === PING_ARGUMENT ? id8(number) : id4(number);
    return this.#link.track({ to, id, args }, this.#options.timeoutMs ?? TIMEOUT_MS);
  }
}
