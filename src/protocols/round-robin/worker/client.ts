/** A client of a round-robin server: laboro's or an original. */
import { LaboroError } from "../../../base/errors.js";
import { id4, id8, type Message, MQS_MORE, ONGOING, PING_ARGUMENT, STREAM } from "../frames.js";
import { StreamReader } from "../stream.js";
import { RoundRobinLink, type RoundRobinLinkOptions } from "./link.js";

export interface RoundRobinClientOptions extends RoundRobinLinkOptions {
  /** How long an answer is waited for. */
  readonly timeoutMs?: number;
  /** How long a server is waited for that is not there. */
  readonly connectMs?: number;
}

const TIMEOUT_MS = 15_000;
const CONNECT_MS = 10_000;
const MAX_STREAM_BYTES = 1024 * 1024 * 1024;
export const HOST_ID = Buffer.from("STREAM_ID");

export class RoundRobinClient {
  readonly #link: RoundRobinLink;
  readonly #options: RoundRobinClientOptions;

  private constructor(link: RoundRobinLink, options: RoundRobinClientOptions) {
    this.#link = link;
    this.#options = options;
  }

  /** Does not wait until the server is there; what is asked for does. */
  static async open(options: RoundRobinClientOptions): Promise<RoundRobinClient> {
    return new RoundRobinClient(await RoundRobinLink.open(options, {}), options);
  }

  get identity(): string {
    return this.#link.identity;
  }

  whenReady(): Promise<void> {
    return this.#link.whenReady(this.#options.connectMs ?? CONNECT_MS);
  }

  /** EXEC: it has no answer. */
  async exec(command: Uint8Array, ...args: readonly Uint8Array[]): Promise<void> {
    await this.whenReady();
    const sent = this.#link.send({ command: "EXEC", id: id8(this.#link.nextId()), args: [command, ...args] });
    if (!sent) throw new LaboroError("LABORO_BROKER_GONE", "the server is not there");
  }

  /** TRACKEXEC: the arguments of its RESPONSE, and who sent it. */
  async trackexec(command: Uint8Array, ...args: readonly Uint8Array[]): Promise<Message> {
    await this.whenReady();
    return this.#track([], [command, ...args]);
  }

  /** EXEC PING. */
  ping(): Promise<void> {
    return this.exec(PING_ARGUMENT);
  }

  /** TRACKEXEC PING; gives the worker that answered. */
  async pingTracked(): Promise<string> {
    const { returnPath } = await this.trackexec(PING_ARGUMENT);
    return returnPath.at(-1)?.toString("latin1") ?? "";
  }

  /** STREAM: all of its data. Packets after the first are asked of the worker that has the rest. */
  async stream(size: number, hostId: Uint8Array = HOST_ID): Promise<Buffer> {
    const reader = new StreamReader(MAX_STREAM_BYTES);
    let answer = await this.trackexec(STREAM, hostId, Buffer.from(String(size)));
    for (;;) {
      const taken = reader.take(answer.args[0]);
      if (taken instanceof Uint8Array) return taken;
      answer = await this.#track([...answer.returnPath].reverse(), [MQS_MORE, hostId, taken.next, Buffer.from("0")]);
    }
  }

  /** Informs a worker that the reader of a stream is still there. */
  async ongoing(worker: string, hostId: Uint8Array = HOST_ID): Promise<void> {
    await this.whenReady();
    await this.#track([Buffer.from(worker, "latin1")], [ONGOING, hostId]);
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  #track(to: readonly Uint8Array[], args: readonly Uint8Array[]): Promise<Message> {
    const number = this.#link.nextId();
    // Opaque to everyone; as wide as the original makes them.
    const id = args[0] === PING_ARGUMENT ? id8(number) : id4(number);
    return this.#link.track({ to, id, args }, this.#options.timeoutMs ?? TIMEOUT_MS);
  }
}
