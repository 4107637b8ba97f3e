/**
 * A worker of a round-robin server, laboro's or an original.
 *   idle         not registered, connected or not
 *   registered   REGISTER was answered; it is sent again after each reconnect
 *   leaving      DEREGISTER was sent; what has come is still answered
 *   closed       for good
 *
 * A client of a round-robin server, laboro's or an original.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { LaboroError } from "../../../base/errors.js";
import {
  DEREGISTER,
  EMPTY,
  FAILURE,
  failureReply,
  INCREMENT,
  id4,
  id8,
  isArgument,
  isFailureReply,
  type Message,
  MQS_MORE,
  ONGOING,
  PING_ARGUMENT,
  printable,
  REGISTER,
  readNumber,
  STREAM,
  SUCCESS,
} from "../frames.js";
import { StreamReader, StreamSources, testData } from "../stream.js";
import { RoundRobinLink, type RoundRobinLinkOptions } from "./link.js";

/** Gets the arguments after the command and returns those of the RESPONSE. If it throws, the RESPONSE says failure. */
type CommandHandler = (
  args: readonly Buffer[],
  message: Message,
) => readonly Uint8Array[] | Promise<readonly Uint8Array[]>;

export interface RoundRobinWorkerOptions extends RoundRobinLinkOptions {
  readonly slots?: number;
  /** Commands by name, besides those of the library itself. */
  readonly commands?: Readonly<Record<string, CommandHandler>>;
  readonly zlib?: boolean;
  /** An answer that takes longer is announced with TRACKADDRESS. */
  readonly trackMs?: number;
  readonly timeoutMs?: number;
  /** How long `close` waits for answers at most. */
  readonly drainMs?: number;
  readonly onMessage?: (message: Message) => void;
  readonly onDisconnected?: (why: string) => void;
  readonly onReregistered?: () => void;
  readonly onError?: (error: unknown) => void;
}

const SLOTS = 10;
const WORKER_TIMEOUT_MS = 5_000;
const TRACK_MS = 2_000;
const DRAIN_MS = 30_000;
const PONG_MS = 1_000;
/** `close` waits for this silence: an original may answer PING before another of its threads forwards a message… */
const QUIET_MS = 100;
/** …and the reader of a stream needs time to ask for the next packet. */
const STREAM_QUIET_MS = 1_000;
const MAX_CALL_BYTES = 64 * 1024 * 1024;

export class RoundRobinWorker {
  readonly #options: RoundRobinWorkerOptions;
  readonly #sources = new StreamSources();
  readonly #handlers = new Map<string, CommandHandler>();
  readonly #counts = { messages: 0, answered: 0, failed: 0 };
  readonly #link: RoundRobinLink;
  #state: "idle" | "registered" | "leaving" | "closed" = "idle";
  #inProgress = 0;
  #closing: Promise<void> | undefined;

  private constructor(options: RoundRobinWorkerOptions, link: RoundRobinLink) {
    this.#options = options;
    this.#link = link;
    const set = (command: Buffer, handler: CommandHandler) => this.#handlers.set(command.toString("latin1"), handler);
    set(PING_ARGUMENT, () => []);
    set(STREAM, ([host = EMPTY, size]) => [this.#stream(host, size)]);
    set(MQS_MORE, ([host, handle]) => [this.#sources.nextPacket(host, handle) ?? failureReply(MQS_MORE)]);
    set(ONGOING, ([host]) => [this.#sources.keepAlive(host) ? SUCCESS : FAILURE]);
    for (const [name, handler] of Object.entries(options.commands ?? {})) set(Buffer.from(name, "latin1"), handler);
  }

  static async open(options: RoundRobinWorkerOptions): Promise<RoundRobinWorker> {
    const link = await RoundRobinLink.open(options, {
      request: (message) => worker.#onRequest(message),
      ready: () => worker.#reregister(),
      disconnected: (why) => options.onDisconnected?.(why),
    });
    const worker = new RoundRobinWorker(options, link);
    return worker;
  }

  get identity(): string {
    return this.#link.identity;
  }

  get registered(): boolean {
    return this.#state === "registered";
  }

  /** Since it was opened. */
  get counts(): { readonly messages: number; readonly answered: number; readonly failed: number } {
    return this.#counts;
  }

  /** Resolves when the server has answered. */
  async register(): Promise<void> {
    await this.#link.whenReady(this.#options.timeoutMs ?? WORKER_TIMEOUT_MS);
    await this.#register();
    this.#state = "registered";
  }

  /** DEREGISTER has no answer. */
  async deregister(): Promise<void> {
    if (this.#state === "registered") this.#state = "leaving";
    const sent = this.#link.send({ command: "EXEC", id: Buffer.from("WORKER"), args: [DEREGISTER] });
    if (!sent) throw new LaboroError("LABORO_BROKER_GONE", `no connection to ${this.#options.url}`);
  }

  /** Deregisters, answers the remaining messages, then disconnects. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#state === "registered") await this.deregister().catch(() => {});
    if (this.#state === "leaving") await this.#drain();
    this.#state = "closed";
    await this.#link.close();
  }

  async #drain(): Promise<void> {
    const { drainMs = DRAIN_MS } = this.#options;
    const end = performance.now() + drainMs;
    // Messages that the server sent before it read DEREGISTER arrive before this PONG.
    await this.#link.ping(Math.min(PONG_MS, drainMs)).catch(() => {});
    for (let seen = -1; this.#link.ready && performance.now() < end; ) {
      if (this.#inProgress === 0 && this.#counts.messages === seen) return;
      seen = this.#counts.messages;
      await sleep(this.#sources.size > 0 ? STREAM_QUIET_MS : QUIET_MS);
    }
  }

  async #register(): Promise<void> {
    const { slots = SLOTS, timeoutMs = WORKER_TIMEOUT_MS } = this.#options;
    const args = [REGISTER, Buffer.from(String(slots))];
    await this.#link.track({ id: id4(this.#link.nextId()), args }, timeoutMs);
  }

  /** After a reconnect the server may not know this worker. */
  #reregister(): void {
    if (this.#state !== "registered") return;
    this.#register().then(
      () => this.#options.onReregistered?.(),
      (cause: unknown) => this.#options.onError?.(cause),
    );
  }

  #onRequest(message: Message): void {
    if (this.#state === "closed") return;
    this.#options.onMessage?.(message);
    const { command } = message;
    const [what, ...rest] = message.args;
    this.#counts.messages++;
    const handler = this.#handlers.get(what?.toString("latin1") ?? "");
    let announced: NodeJS.Timeout | undefined;
    this.#inProgress++;
    const answer = (frames: readonly Uint8Array[]): void => {
      this.#inProgress--;
      clearTimeout(announced);
      if (isFailureReply(frames[0])) this.#counts.failed++;
      else this.#counts.answered++;
      if (command === "TRACKEXEC") this.#reply(message, "RESPONSE", frames);
      // These commands of the library take no slot.
      if (isArgument(what, MQS_MORE) || isArgument(what, ONGOING)) return;
      this.#link.send({ command: "EXEC", id: id4(this.#link.nextId()), args: [INCREMENT] });
    };
    const fail = (cause: unknown): void => {
      this.#options.onError?.(cause);
      answer([failureReply(what)]);
    };
    try {
      if (handler === undefined) throw failed(`unknown command ${printable(what ?? EMPTY)}`);
      const answered = handler(rest, message);
      if (!(answered instanceof Promise)) {
        answer(answered);
        return;
      }
      if (command === "TRACKEXEC") {
        const { url, trackMs = TRACK_MS } = this.#options;
        const place = [Buffer.from(url), Buffer.from(this.identity)];
        announced = setTimeout(() => this.#reply(message, "TRACKADDRESS", place), trackMs);
      }
      answered.then(answer, fail);
    } catch (cause) {
      fail(cause);
    }
  }

  #reply({ id, returnPath }: Message, command: "RESPONSE" | "TRACKADDRESS", args: readonly Uint8Array[]): void {
    this.#link.send({ command, to: returnPath.toReversed(), id, args });
  }

  #stream(host: Buffer, size: Buffer | undefined): Buffer {
    const bytes = readNumber(size, MAX_CALL_BYTES);
    if (bytes === undefined) throw failed(`a stream of ${printable(size ?? EMPTY)} bytes`);
    return this.#sources.begin(testData(bytes), host, this.#options.zlib);
  }
}

const failed = (why: string): LaboroError => new LaboroError("LABORO_SERVICE_FAILED", why);

interface RoundRobinClientOptions extends RoundRobinLinkOptions {
  /** For an answer. */
  readonly timeoutMs?: number;
  /** For a connection. */
  readonly connectMs?: number;
}

const REQUEST_TIMEOUT_MS = 15_000;
const CONNECT_MS = 10_000;
const MAX_REPLY_BYTES = 1024 * 1024 * 1024;
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
  async stream(size: number): Promise<Buffer> {
    const reader = new StreamReader(MAX_REPLY_BYTES);
    let answer = await this.trackexec(STREAM, HOST_ID, Buffer.from(String(size)));
    for (;;) {
      const taken = reader.take(answer.args[0]);
      if (taken instanceof Uint8Array) return taken;
      answer = await this.#track(answer.returnPath.toReversed(), [MQS_MORE, HOST_ID, taken.next, Buffer.from("0")]);
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
    return this.#link.track({ to, id, args }, this.#options.timeoutMs ?? REQUEST_TIMEOUT_MS);
  }
}
