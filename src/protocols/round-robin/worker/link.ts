/**
 * The side that connects, for worker and client alike.
 *
 *   connecting   no connection; it is tried again by itself
 *   greeting     PING was sent, and PONG must be the first thing that comes
 *   ready        messages flow; PING now and then, so that the server knows that this end is alive
 *   closed       for good
 */
import { LaboroError } from "../../../base/errors.js";
import { type CurveClient, type Dealer, openDealer } from "../../zeromq/index.js";
import { FAILURE, id8, type Message, type MessageInit, makeMessage, readMessage } from "../frames.js";

export interface RoundRobinLinkOptions {
  /** tcp://HOST:PORT, spelled as the server spells its own identity. */
  readonly url: string;
  readonly curve?: CurveClient | undefined;
  readonly heartbeatMs?: number;
  readonly reconnectMs?: number;
  readonly reconnectMaxMs?: number;
}

export interface LinkListener {
  /** EXEC and TRACKEXEC: for a worker. */
  request?(message: Message): void;
  /** The server is there and has answered: for the first time, or again. */
  ready?(): void;
  disconnected?(why: string): void;
}

interface Pending {
  readonly resolve: (message: Message) => void;
  readonly reject: (error: LaboroError) => void;
  readonly timeoutMs: number;
  timer: NodeJS.Timeout;
  /** Where it is being handled, once TRACKADDRESS has said so… */
  worker?: string;
  /** …which gets PINGs until the answer comes. */
  pingTimer?: NodeJS.Timeout;
}

const HEARTBEAT_MS = 30_000;
const GREETING_RETRY_MS = 2_000;
const NUMBERS = 2 ** 48;

export class RoundRobinLink {
  readonly identity: string;
  readonly #options: RoundRobinLinkOptions;
  readonly #listener: LinkListener;
  readonly #pending = new Map<string, Pending>();
  readonly #readyWaiters = new Set<() => void>();
  #dealer: Dealer | undefined;
  #state: "connecting" | "greeting" | "ready" | "closed" = "connecting";
  #pingTimer: NodeJS.Timeout | undefined;
  #ids = 0;

  private constructor(options: RoundRobinLinkOptions, listener: LinkListener) {
    this.#options = options;
    this.#listener = listener;
    // As the original makes them, with the server's name in it; but the original's number, up to a million, is sometimes another's.
    this.identity = `${options.url}:${1 + Math.floor(Math.random() * NUMBERS)}`;
  }

  /** Begins to connect; does not wait for it. */
  static async open(options: RoundRobinLinkOptions, listener: LinkListener): Promise<RoundRobinLink> {
    const link = new RoundRobinLink(options, listener);
    const { url, curve, reconnectMs, reconnectMaxMs } = options;
    const dealer = await openDealer(
      { url, identity: link.identity, curve, reconnectMs, reconnectMaxMs },
      {
        opened: () => link.#greet(),
        message: (frames) => link.#received(frames),
        closed: (why) => link.#lost(why),
      },
    );
    link.#dealer = dealer;
    return link;
  }

  get ready(): boolean {
    return this.#state === "ready";
  }

  /** Resolves when the server has answered; rejects after `timeoutMs`. */
  whenReady(timeoutMs: number): Promise<void> {
    if (this.#state === "ready") return Promise.resolve();
    return new Promise((resolve, reject) => {
      const done = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#readyWaiters.delete(done);
        const why = `no round-robin server answers at ${this.#options.url}`;
        reject(new LaboroError("LABORO_BROKER_UNREACHABLE", why));
      }, timeoutMs);
      this.#readyWaiters.add(done);
    });
  }

  nextId(): number {
    return ++this.#ids;
  }

  /** False where nobody is there. */
  send(parts: MessageInit): boolean {
    return this.#state === "ready" && (this.#dealer?.send(makeMessage(parts)) ?? false);
  }

  /** TRACKEXEC: resolves with its RESPONSE, rejects where that says failure or does not come in time. */
  track(parts: Omit<MessageInit, "command">, timeoutMs: number): Promise<Message> {
    return this.#ask({ ...parts, command: "TRACKEXEC" }, timeoutMs);
  }

  /** PING: resolves with the server's PONG. */
  ping(timeoutMs: number): Promise<Message> {
    return this.#ask({ command: "PING", id: id8(this.nextId()) }, timeoutMs);
  }

  #ask(parts: MessageInit, timeoutMs: number): Promise<Message> {
    return new Promise((resolve, reject) => {
      const key = Buffer.from(parts.id).toString("hex");
      const timer = setTimeout(() => this.#expire(key), timeoutMs);
      this.#pending.set(key, { resolve, reject, timer, timeoutMs });
      if (!this.send(parts)) this.#fail(key, gone("the server is not there"));
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
    // The dealer may be there only after this turn.
    process.nextTick(ping);
  }

  #lost(why: string): void {
    if (this.#state === "closed") return;
    clearInterval(this.#pingTimer);
    const before = this.#state;
    this.#state = "connecting";
    for (const key of [...this.#pending.keys()]) this.#fail(key, gone(why));
    if (before === "ready") this.#listener.disconnected?.(why);
  }

  #received(frames: readonly Buffer[]): void {
    const message = readMessage(frames);
    // What cannot be read is nothing that could be answered either.
    if (typeof message === "string") return;
    if (message.command === "PONG") this.#ponged(message);
    else if (message.command === "PING")
      this.send({ command: "PONG", to: [...message.returnPath].reverse(), id: message.id });
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
    for (const done of [...this.#readyWaiters]) {
      this.#readyWaiters.delete(done);
      done();
    }
  }

  #responded(message: Message): void {
    const key = message.id.toString("hex");
    const pending = this.#pending.get(key);
    if (pending === undefined) return;
    if (message.args.length === 1 && message.args[0]?.equals(FAILURE) === true) {
      this.#fail(key, new LaboroError("LABORO_SERVICE_FAILED", "the answer is the status failure"));
      return;
    }
    this.#forget(key, pending);
    pending.resolve(message);
  }

  /** It takes longer, and there: as long as that worker answers PING, it is waited for. */
  #tracked({ id, args }: Message): void {
    const key = id.toString("hex");
    const pending = this.#pending.get(key);
    const worker = args.at(-1);
    if (pending === undefined || pending.pingTimer !== undefined || worker === undefined) return;
    const { heartbeatMs = HEARTBEAT_MS } = this.#options;
    const address = Buffer.from(worker);
    const ask = (): void => {
      this.send({ command: "PING", id: id8(this.nextId()), to: [address] });
    };
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
    this.#fail(key, new LaboroError("LABORO_DEADLINE", "no answer came in time"));
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
