/**
 * The connection of a worker or client to one broker: what comes is taken one by one, with a deadline.
 *
 *   open     messages come and go
 *   down     the connection is lost; it is made again by itself. After a while of this it counts as closed
 *   closed   for good: whoever takes the next message hears why
 */
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { type CurveClient, type Dealer, openDealer } from "../../zeromq/index.js";
import type { Command, Parameters } from "../commands.js";
import { type Message, readMessage, writeFrames } from "../frames.js";

export interface LinkOptions {
  readonly url: string;
  readonly identity?: string;
  readonly curve?: CurveClient;
  /** How long it may take to be there. */
  readonly patienceMs: number;
  /** How long it may be down after that; as long, if absent. */
  readonly downMs?: number;
}

/** A message; or that the other end is there, for the first time or again. */
export type Taken = Message | "opened";

export class Link {
  readonly url: string;
  readonly #downMs: number;
  readonly #queue: Taken[] = [];
  #dealer: Dealer | undefined;
  #closing: Promise<void> | undefined;
  #opened = false;
  #over: LaboroError | undefined;
  #waiting: (() => void) | undefined;
  #patience: NodeJS.Timeout | undefined;

  private constructor({ url, patienceMs, downMs = patienceMs }: LinkOptions) {
    this.url = url;
    this.#downMs = downMs;
  }

  static async open(options: LinkOptions): Promise<Link> {
    const { url, identity, curve } = options;
    const link = new Link(options);
    link.#missing(link.#nobody, options.patienceMs);
    link.#dealer = await openDealer(
      {
        url,
        reconnectMostMs: 1_000,
        ...(identity === undefined ? {} : { identity }),
        ...(curve === undefined ? {} : { curve }),
      },
      {
        message: (frames) => link.#heard(frames),
        opened: () => {
          link.#opened = true;
          clearTimeout(link.#patience);
          link.#push("opened");
        },
        closed: (why) => {
          if (link.#opened) link.#missing(`${url}: ${why}`, link.#downMs);
        },
      },
    );
    return link;
  }

  /** False where it is not open. */
  say(command: Command, parameters: Parameters, body: readonly Uint8Array[] = []): boolean {
    return this.#dealer?.send(writeFrames({ command, parameters, body })) ?? false;
  }

  /** The next thing that comes; throws LABORO_BROKER_GONE where none does in time, and what closed the link. */
  async take(timeoutMs: number): Promise<Taken> {
    const end = performance.now() + timeoutMs;
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) return next;
      if (this.#over !== undefined) throw this.#over;
      const left = end - performance.now();
      if (left <= 0) {
        throw gone(this.#opened ? `${this.url}: nothing was heard for ${Math.round(timeoutMs)} ms` : this.#nobody);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#waiting = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#waiting = undefined;
    }
  }

  /** Whoever takes the next message hears this. */
  end(why: LaboroError): void {
    this.#over ??= why;
    clearTimeout(this.#patience);
    this.#waiting?.();
  }

  close(): Promise<void> {
    this.end(gone(`${this.url}: it was closed`));
    this.#closing ??= this.#dealer?.close();
    return this.#closing ?? Promise.resolve();
  }

  #heard(frames: readonly Uint8Array[]): void {
    try {
      this.#push(readMessage(frames));
    } catch (cause) {
      this.end(asLaboroError(cause));
    }
  }

  #push(taken: Taken): void {
    this.#queue.push(taken);
    this.#waiting?.();
  }

  get #nobody(): string {
    return `nobody answers at ${this.url}`;
  }

  #missing(why: string, patienceMs: number): void {
    clearTimeout(this.#patience);
    if (this.#over !== undefined) return;
    if (patienceMs === 0) this.end(gone(why));
    else this.#patience = setTimeout(() => this.end(gone(why)), patienceMs);
  }
}

const gone = (why: string): LaboroError => new LaboroError("LABORO_BROKER_GONE", why);
