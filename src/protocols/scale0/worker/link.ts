/**
 * The connection of a worker or client to one broker: messages are received one by one, with a deadline.
 *
 *   open     messages come and go
 *   down     the connection is lost; it reconnects by itself. After a timeout it counts as closed
 *   closed   for good: the next receive throws the reason
 */
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { type CurveClient, type Dealer, openDealer } from "../../zeromq/index.js";
import type { Command, Parameters } from "../commands.js";
import { type Message, readMessage, writeFrames } from "../frames.js";

export interface Scale0LinkOptions {
  readonly url: string;
  readonly identity?: string | undefined;
  readonly curve?: CurveClient | undefined;
  /** How long it may take to be there. */
  readonly connectTimeoutMs: number;
  /** How long it may be down after that; as long, if absent. */
  readonly reconnectTimeoutMs?: number;
}

/** A message; or that the other end is there, for the first time or again. */
export type LinkEvent = Message | "opened";

export class Scale0Link {
  readonly url: string;
  readonly #reconnectTimeoutMs: number;
  readonly #queue: LinkEvent[] = [];
  #dealer: Dealer | undefined;
  #closing: Promise<void> | undefined;
  #opened = false;
  #closeReason: LaboroError | undefined;
  #wakeReader: (() => void) | undefined;
  #timeoutTimer: NodeJS.Timeout | undefined;
  #connectTimer: NodeJS.Timeout | undefined;
  #awaitsConfig = false;

  private constructor({ url, connectTimeoutMs, reconnectTimeoutMs = connectTimeoutMs }: Scale0LinkOptions) {
    this.url = url;
    this.#reconnectTimeoutMs = reconnectTimeoutMs;
  }

  static async open(options: Scale0LinkOptions): Promise<Scale0Link> {
    const { url, identity, curve } = options;
    const link = new Scale0Link(options);
    link.#startTimeout(link.#noAnswer, options.connectTimeoutMs);
    link.#dealer = await openDealer(
      { url, identity, curve, reconnectMaxMs: 1_000 },
      {
        message: (frames) => link.#received(frames),
        opened: () => {
          link.#opened = true;
          clearTimeout(link.#timeoutTimer);
          link.#push("opened");
        },
        closed: (why) => {
          if (link.#opened) link.#startTimeout(`${url}: ${why}`, link.#reconnectTimeoutMs);
        },
      },
    );
    return link;
  }

  /** False where it is not open. */
  send(command: Command, parameters: Parameters, body: readonly Uint8Array[] = []): boolean {
    return this.#dealer?.send(writeFrames({ command, parameters, body })) ?? false;
  }

  /** Sends CONNECT after a delay. One that waits already is enough. */
  connect(parameters: () => Parameters, delayMs: number): void {
    const connect = (): void => {
      this.cancelConnect();
      this.#awaitsConfig = this.send("CONNECT", parameters());
    };
    if (delayMs === 0) connect();
    else this.#connectTimer ??= setTimeout(connect, delayMs);
  }

  cancelConnect(): void {
    clearTimeout(this.#connectTimer);
    this.#connectTimer = undefined;
  }

  /** Whether a CONFIG that comes now answers a CONNECT. Only the first one does. */
  answersConnect(): boolean {
    const answers = this.#awaitsConfig;
    this.#awaitsConfig = false;
    return answers;
  }

  /** The next thing that comes; throws LABORO_BROKER_GONE where none does in time, and what closed the link. */
  async receive(timeoutMs: number): Promise<LinkEvent> {
    const end = performance.now() + timeoutMs;
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) return next;
      if (this.#closeReason !== undefined) throw this.#closeReason;
      const left = end - performance.now();
      if (left <= 0) {
        throw gone(this.#opened ? `${this.url}: nothing was heard for ${Math.round(timeoutMs)} ms` : this.#noAnswer);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wakeReader = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wakeReader = undefined;
    }
  }

  /** The next receive throws this. */
  fail(why: LaboroError): void {
    this.#closeReason ??= why;
    clearTimeout(this.#timeoutTimer);
    this.cancelConnect();
    this.#wakeReader?.();
  }

  close(): Promise<void> {
    this.fail(gone(`${this.url}: it was closed`));
    this.#closing ??= this.#dealer?.close();
    return this.#closing ?? Promise.resolve();
  }

  #received(frames: readonly Uint8Array[]): void {
    try {
      this.#push(readMessage(frames));
    } catch (cause) {
      this.fail(asLaboroError(cause));
    }
  }

  #push(event: LinkEvent): void {
    this.#queue.push(event);
    this.#wakeReader?.();
  }

  get #noAnswer(): string {
    return `nobody answers at ${this.url}`;
  }

  #startTimeout(why: string, timeoutMs: number): void {
    clearTimeout(this.#timeoutTimer);
    if (this.#closeReason !== undefined) return;
    if (timeoutMs === 0) this.fail(gone(why));
    else this.#timeoutTimer = setTimeout(() => this.fail(gone(why)), timeoutMs);
  }
}

const gone = (why: string): LaboroError => new LaboroError("LABORO_BROKER_GONE", why);
