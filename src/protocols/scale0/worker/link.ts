/**
 * The connection of a worker or client to one broker, and how another broker of its group is found. Messages are
 * received one by one, with a deadline.
 *
 *   open     messages come and go
 *   down     the connection is lost and the socket reconnects. After a timeout the link is closed
 *   closed   for good: the next receive throws the reason
 */
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { type CurveClient, type Dealer, openDealer } from "../../zeromq/index.js";
import { type BrokerUris, type Command, disconnectError, type Parameters, readBrokers } from "../commands.js";
import { type Message, readMessage, writeFrames } from "../frames.js";

interface Scale0LinkOptions {
  readonly url: string;
  readonly identity?: string | undefined;
  readonly curve?: CurveClient | undefined;
  readonly connectTimeoutMs: number;
  /** How long it may be down later; `connectTimeoutMs` if absent. */
  readonly reconnectTimeoutMs?: number;
}

/** A message, or "opened" when it is connected or reconnected. */
type LinkEvent = Message | "opened";

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
  #lastLoss: string | undefined;

  private constructor({ url, connectTimeoutMs, reconnectTimeoutMs = connectTimeoutMs }: Scale0LinkOptions) {
    this.url = url;
    this.#reconnectTimeoutMs = reconnectTimeoutMs;
  }

  static async open(options: Scale0LinkOptions): Promise<Scale0Link> {
    const { url, identity, curve } = options;
    const link = new Scale0Link(options);
    link.#startTimeout(() => link.#noAnswer, options.connectTimeoutMs);
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
          link.#lastLoss = why;
          if (link.#opened) link.#startTimeout(() => `${url}: ${why}`, link.#reconnectTimeoutMs);
        },
      },
    );
    return link;
  }

  /** False if it is not open. */
  send(command: Command, parameters: Parameters, body: readonly Uint8Array[] = []): boolean {
    return this.#dealer?.send(writeFrames({ command, parameters, body })) ?? false;
  }

  /** Sends CONNECT after a delay, unless one waits already. */
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

  /** Whether a CONFIG that is received now answers a CONNECT. Only the first one does. */
  answersConnect(): boolean {
    const answers = this.#awaitsConfig;
    this.#awaitsConfig = false;
    return answers;
  }

  /** The next event. Throws LABORO_BROKER_GONE if none comes in time, and what closed the link. */
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

  async close(): Promise<void> {
    this.fail(gone(`${this.url}: the link was closed`));
    this.#closing ??= this.#dealer?.close();
    await this.#closing;
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
    return `no broker answers at ${this.url}${this.#lastLoss === undefined ? "" : `: ${this.#lastLoss}`}`;
  }

  #startTimeout(why: () => string, timeoutMs: number): void {
    clearTimeout(this.#timeoutTimer);
    if (this.#closeReason !== undefined) return;
    if (timeoutMs === 0) this.fail(gone(why()));
    else this.#timeoutTimer = setTimeout(() => this.fail(gone(why())), timeoutMs);
  }
}

const gone = (why: string): LaboroError => new LaboroError("LABORO_BROKER_GONE", why);

/** NEEDBROKER: the brokers to go to. Closes the link. */
export async function needBroker(
  link: Scale0Link,
  parameters: Parameters,
  timeoutMs: number,
): Promise<readonly BrokerUris[]> {
  try {
    for (;;) {
      const taken = await link.receive(timeoutMs);
      if (taken === "opened") link.send("NEEDBROKER", parameters);
      else if (taken.command === "CHANGEBROKER") return readBrokers(taken.parameters.brokers);
      else if (taken.command === "DISCONNECTERROR") throw disconnectError(taken.parameters);
    }
  } finally {
    await link.close();
  }
}

/** The result of the first attempt that succeeds. Throws the first failure, or a permanent refusal at once. */
export async function firstSuccessful<From, To>(
  all: readonly From[],
  attempt: (one: From) => Promise<To>,
): Promise<To> {
  let failed: unknown;
  for (const one of all) {
    try {
      return await attempt(one);
    } catch (cause) {
      if (cause instanceof RegistrationRefused) throw cause;
      failed ??= cause;
    }
  }
  throw failed ?? unreachable("no other broker is known");
}

/** The broker refuses this worker permanently. */
export class RegistrationRefused extends Error {
  constructor(override readonly cause: LaboroError & { readonly status: number }) {
    super(cause.message);
  }
}

export const unreachable = (why: string): LaboroError => new LaboroError("LABORO_BROKER_UNREACHABLE", why);

/** A CONNECT without an answer in this time has failed. */
export const CONNECT_TIMEOUT_MS = 5_000;
const RETRY_MS = 500;
const MAX_FACTOR = 10;

/** The first attempt is made at once. Further attempts wait longer each time. */
export class RetryDelay {
  readonly #firstMs: number;
  #delayMs = 0;
  #last = Number.NEGATIVE_INFINITY;

  constructor(firstMs = RETRY_MS) {
    this.#firstMs = firstMs;
  }

  /** Milliseconds to wait before the next attempt. */
  next(now = performance.now()): number {
    const maxMs = MAX_FACTOR * this.#firstMs;
    this.#delayMs = now - this.#last > 2 * maxMs ? 0 : Math.min(Math.max(2 * this.#delayMs, this.#firstMs), maxMs);
    const at = Math.max(now, this.#last + this.#delayMs);
    this.#last = at;
    return at - now;
  }
}
