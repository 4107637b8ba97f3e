/**
 * The connection of a worker or client to its server.
 *
 *   connecting   no connection; the socket retries by itself
 *   greeting     PING was sent; the first message must be PONG
 *   ready        messages flow, with a PING as heartbeat now and then
 *   closed       for good
 */
import { EventEmitter, once } from "node:events";
import { LaboroError } from "../../../base/errors.js";
import { type CurveClient, type Dealer, openDealer } from "../../zeromq/index.js";
import { id8, isFailure, type Message, type MessageInit, makeMessage, readMessage } from "../frames.js";

export interface RoundRobinLinkOptions {
  /** tcp://HOST:PORT, spelled as the server spells its own identity. */
  readonly url: string;
  readonly curve?: CurveClient | undefined;
  readonly heartbeatMs?: number;
  readonly reconnectMs?: number;
  readonly reconnectMaxMs?: number;
}

interface LinkListener {
  /** EXEC or TRACKEXEC. */
  request?(message: Message): void;
  /** Also after a reconnect. */
  ready?(): void;
  disconnected?(why: string): void;
}

interface Pending {
  readonly resolve: (message: Message) => void;
  readonly reject: (error: LaboroError) => void;
  readonly timeoutMs: number;
  timer: NodeJS.Timeout;
  /** From TRACKADDRESS on: the worker that has it, which gets PINGs until the answer comes. */
  worker?: string;
  pingTimer?: NodeJS.Timeout;
}

const HEARTBEAT_MS = 30_000;
const GREETING_RETRY_MS = 2_000;
/** The original uses a million, and two of its peers can get the same number. */
const IDENTITY_NUMBERS = 2 ** 48;

export class RoundRobinLink {
  readonly identity: string;
  readonly #options: RoundRobinLinkOptions;
  readonly #listener: LinkListener;
  readonly #pending = new Map<string, Pending>();
  readonly #events = new EventEmitter<{ ready: [] }>().setMaxListeners(0);
  #dealer: Dealer | undefined;
  #state: "connecting" | "greeting" | "ready" | "closed" = "connecting";
  #pingTimer: NodeJS.Timeout | undefined;
  #ids = 0;
  #lastLoss: string | undefined;

  private constructor(options: RoundRobinLinkOptions, listener: LinkListener) {
    this.#options = options;
    this.#listener = listener;
    this.identity = `${options.url}:${1 + Math.floor(Math.random() * IDENTITY_NUMBERS)}`;
  }

  /** Begins to connect; does not wait for it. */
  static async open(options: RoundRobinLinkOptions, listener: LinkListener): Promise<RoundRobinLink> {
    const link = new RoundRobinLink(options, listener);
    const { url, curve, reconnectMs, reconnectMaxMs } = options;
    link.#dealer = await openDealer(
      { url, identity: link.identity, curve, reconnectMs, reconnectMaxMs },
      {
        opened: () => link.#greet(),
        message: (frames) => link.#received(frames),
        closed: (why) => link.#lost(why),
      },
    );
    return link;
  }

  get ready(): boolean {
    return this.#state === "ready";
  }

  /** Resolves when the server has answered; rejects after `timeoutMs`. */
  async whenReady(timeoutMs: number): Promise<void> {
    if (this.#state === "ready") return;
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(), timeoutMs);
    try {
      await once(this.#events, "ready", { signal: timeout.signal });
    } catch {
      const why = this.#lastLoss === undefined ? "" : `: ${this.#lastLoss}`;
      const text = `no round-robin server answers at ${this.#options.url}${why}`;
      throw new LaboroError("LABORO_BROKER_UNREACHABLE", text);
    } finally {
      clearTimeout(timer);
    }
  }

  nextId(): number {
    return ++this.#ids;
  }

  /** False without a connection. */
  send(parts: MessageInit): boolean {
    return this.#state === "ready" && (this.#dealer?.send(makeMessage(parts)) ?? false);
  }

  /** Sends TRACKEXEC. Resolves with the RESPONSE; rejects if it reports a failure or is late. */
  track(parts: Omit<MessageInit, "command">, timeoutMs: number): Promise<Message> {
    return this.#ask({ ...parts, command: "TRACKEXEC" }, timeoutMs);
  }

  /** Sends PING. Resolves with the server's PONG. */
  ping(timeoutMs: number): Promise<Message> {
    return this.#ask({ command: "PING", id: id8(this.nextId()) }, timeoutMs);
  }

  #ask(parts: MessageInit, timeoutMs: number): Promise<Message> {
    return new Promise((resolve, reject) => {
      const key = Buffer.from(parts.id).toString("hex");
      const timer = setTimeout(() => this.#expire(key), timeoutMs);
      this.#pending.set(key, { resolve, reject, timer, timeoutMs });
      if (!this.send(parts)) this.#fail(key, gone(`no connection to ${this.#options.url}`));
    });
  }

  async close(): Promise<void> {
    this.#state = "closed";
    clearInterval(this.#pingTimer);
    for (const key of [...this.#pending.keys()]) this.#fail(key, gone("the link was closed"));
    await this.#dealer?.close();
  }

  #greet(): void {
    if (this.#state === "closed") return;
    this.#state = "greeting";
    const ping = (): void => void this.#dealer?.send(makeMessage({ command: "PING", id: id8(this.nextId()) }));
    clearInterval(this.#pingTimer);
    this.#pingTimer = setInterval(ping, GREETING_RETRY_MS);
    // The dealer is set after this turn.
    process.nextTick(ping);
  }

  #lost(why: string): void {
    if (this.#state === "closed") return;
    this.#lastLoss = why;
    clearInterval(this.#pingTimer);
    const before = this.#state;
    this.#state = "connecting";
    for (const key of [...this.#pending.keys()]) this.#fail(key, gone(why));
    if (before === "ready") this.#listener.disconnected?.(why);
  }

  #received(frames: readonly Buffer[]): void {
    const message = readMessage(frames);
    if (typeof message === "string") return;
    if (message.command === "PONG") this.#ponged(message);
    else if (message.command === "PING")
      this.send({ command: "PONG", to: message.returnPath.toReversed(), id: message.id });
    else if (message.command === "RESPONSE") this.#responded(message);
    else if (message.command === "TRACKADDRESS") this.#tracked(message);
    else this.#listener.request?.(message);
  }

  #ponged(message: Message): void {
    const [worker] = message.returnPath;
    if (worker !== undefined) {
      this.#alive(worker.toString("latin1"));
      return;
    }
    if (this.#state !== "greeting") {
      this.#responded(message);
      return;
    }
    this.#state = "ready";
    clearInterval(this.#pingTimer);
    const { heartbeatMs = HEARTBEAT_MS } = this.#options;
    this.#pingTimer = setInterval(() => this.send({ command: "PING", id: id8(this.nextId()) }), heartbeatMs);
    this.#listener.ready?.();
    this.#events.emit("ready");
  }

  #responded(message: Message): void {
    const key = message.id.toString("hex");
    const pending = this.#pending.get(key);
    if (pending === undefined) return;
    this.#forget(key, pending);
    if (isFailure(message.args))
      pending.reject(new LaboroError("LABORO_SERVICE_FAILED", "the answer is the status failure"));
    else pending.resolve(message);
  }

  /** TRACKADDRESS: the answer takes longer. Wait for it as long as its worker answers PING. */
  #tracked({ id, args }: Message): void {
    const key = id.toString("hex");
    const pending = this.#pending.get(key);
    const worker = args.at(-1);
    if (pending === undefined || pending.pingTimer !== undefined || worker === undefined) return;
    const { heartbeatMs = HEARTBEAT_MS } = this.#options;
    const address = Buffer.from(worker);
    const ask = () => this.send({ command: "PING", id: id8(this.nextId()), to: [address] });
    pending.worker = address.toString("latin1");
    pending.pingTimer = setInterval(ask, Math.min(heartbeatMs, pending.timeoutMs / 3));
    ask();
  }

  #alive(worker: string): void {
    for (const [key, pending] of this.#pending) {
      if (pending.worker !== worker) continue;
      clearTimeout(pending.timer);
      pending.timer = setTimeout(() => this.#expire(key), pending.timeoutMs);
    }
  }

  #expire(key: string): void {
    this.#fail(key, new LaboroError("LABORO_DEADLINE", `${this.#options.url}: no answer came in time`));
  }

  #fail(key: string, error: LaboroError): void {
    const pending = this.#pending.get(key);
    if (pending === undefined) return;
    this.#forget(key, pending);
    pending.reject(error);
  }

  #forget(key: string, { timer, pingTimer }: Pending): void {
    this.#pending.delete(key);
    clearTimeout(timer);
    clearInterval(pingTimer);
  }
}

const gone = (why: string): LaboroError => new LaboroError("LABORO_BROKER_GONE", why);
