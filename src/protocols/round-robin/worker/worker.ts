/**
 * A worker of a round-robin server: laboro's or an original.
 *
 *   idle         not registered yet, connected or not: nobody sends it anything
 *   registered   REGISTER was answered; it is sent again whenever the server comes back
 *   leaving      DEREGISTER was sent: what the server has given to this worker is still answered
 *   closed       for good
 */
import { setTimeout as sleep } from "node:timers/promises";
import { LaboroError } from "../../../base/errors.js";
import { failureReply, isFailureReply } from "../calls.js";
import {
  DEREGISTER,
  FAILURE,
  INCREMENT,
  id4,
  isArgument,
  type Message,
  MQS_MORE,
  ONGOING,
  PING_ARGUMENT,
  REGISTER,
  readNumber,
  STREAM,
  SUCCESS,
} from "../frames.js";
import { RoundRobinLink, type RoundRobinLinkOptions } from "./link.js";
import { StreamSources } from "./stream-sources.js";
import { testData } from "./test-data.js";

/** Gets the arguments after the command, gives those of the RESPONSE. What it throws is answered with a refusal. */
export type CommandHandler = (
  args: readonly Buffer[],
  message: Message,
) => readonly Uint8Array[] | Promise<readonly Uint8Array[]>;

export interface RoundRobinWorkerOptions extends RoundRobinLinkOptions {
  readonly slots?: number;
  /** More commands, by name; those of the library itself are always there. */
  readonly commands?: Readonly<Record<string, CommandHandler>>;
  readonly zlib?: boolean;
  /** An answer that takes longer is announced with TRACKADDRESS. */
  readonly trackMs?: number;
  readonly timeoutMs?: number;
  /** The longest that the end waits for answers of its own commands. */
  readonly drainMs?: number;
  /** Called with each message. */
  readonly onMessage?: (message: Message) => void;
  readonly onDisconnected?: (why: string) => void;
  readonly onReregistered?: () => void;
  readonly onError?: (error: unknown) => void;
}

const SLOTS = 10;
const TIMEOUT_MS = 5_000;
const TRACK_MS = 2_000;
const DRAIN_MS = 30_000;
const PONG_MS = 1_000;
/** The end waits for so long a silence: an original server may answer PING before it has passed on a message in another thread… */
const QUIET_MS = 100;
/** …and the reader of a stream needs time to ask for the next packet. */
const STREAM_QUIET_MS = 1_000;
const MAX_STREAM_BYTES = 64 * 1024 * 1024;

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
    set(STREAM, ([host = Buffer.alloc(0), size]) => [this.#stream(host, size)]);
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
    const { timeoutMs = TIMEOUT_MS } = this.#options;
    await this.#link.whenReady(timeoutMs);
    await this.#register();
    this.#state = "registered";
  }

  /** Fire and forget, as the text has it. */
  async deregister(): Promise<void> {
    if (this.#state === "registered") this.#state = "leaving";
    const sent = this.#link.send({ command: "EXEC", id: Buffer.from("WORKER"), args: [DEREGISTER] });
    if (!sent) throw new LaboroError("LABORO_BROKER_GONE", "the server is not there");
  }

  /** Deregisters, answers what it has, and then ends its connection. */
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
    const link = this.#link;
    // What the server sent before it read DEREGISTER comes before this PONG.
    await link.ping(Math.min(PONG_MS, drainMs)).catch(() => {});
    for (let seen = -1; link.ready && performance.now() < end; ) {
      if (this.#inProgress === 0 && this.#counts.messages === seen) return;
      seen = this.#counts.messages;
      await sleep(this.#sources.size > 0 ? STREAM_QUIET_MS : QUIET_MS);
    }
  }

  async #register(): Promise<void> {
    const { slots = SLOTS, timeoutMs = TIMEOUT_MS } = this.#options;
    const link = this.#link;
    const args = [REGISTER, Buffer.from(String(slots))];
    await link.track({ id: id4(link.nextId()), args }, timeoutMs);
  }

  /** The server has been away: it knows nothing of this worker any more. */
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
    const { command, args } = message;
    const [what, ...rest] = args;
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
      // A slot is free again. What the library itself answers took none.
      if (isArgument(what, MQS_MORE) || isArgument(what, ONGOING)) return;
      const link = this.#link;
      link.send({ command: "EXEC", id: id4(link.nextId()), args: [INCREMENT] });
    };
    const fail = (cause: unknown): void => {
      this.#options.onError?.(cause);
      answer([failureReply(what)]);
    };
    try {
      if (handler === undefined) throw new LaboroError("LABORO_SERVICE_FAILED", "an unknown command");
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
    this.#link.send({ command, to: [...returnPath].reverse(), id, args });
  }

  #stream(host: Buffer, size: Buffer | undefined): Buffer {
    const bytes = readNumber(size, MAX_STREAM_BYTES);
    if (bytes === undefined) throw new LaboroError("LABORO_SERVICE_FAILED", "a stream of no size");
    return this.#sources.begin(testData(bytes), host, this.#options.zlib);
  }
}
