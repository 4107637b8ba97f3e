/**
 * Keeps a connection to a foreman up.
 *
 *   connecting  one try
 *   open        connected; the session reports when it has joined
 *   waiting     the try has failed, or the connection ended before it joined: the next try comes after 1, 2, 4 … seconds
 *   stopped     nothing is tried any more
 *
 * After a connection that had joined, the next try is made at once, as the original makes it.
 */

import { asLaboroError, type LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { Connect, ForemanConnection } from "./connection.js";

export interface ConnectionHandler {
  message(bytes: Buffer): void;
  /** The connection is gone. */
  close(): void;
}

export interface ReconnectorOptions {
  readonly connect: Connect;
  readonly log: Log;
  /** Starts a session on a new connection. */
  readonly onConnected: (connection: ForemanConnection, joined: () => void) => ConnectionHandler;
  /** The foreman refuses this worker. Nothing more is tried. */
  readonly onRefused: (error: LaboroError) => void;
  /** It cannot be reached, for the n-th time in a row. */
  readonly onUnreachable: (error: LaboroError, times: number) => void;
  readonly firstDelayMs?: number;
  readonly maxDelayMs?: number;
  /** A foreman that says nothing for so long after the connection has come up is not waited for. */
  readonly joinTimeoutMs?: number;
}

const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 60_000;
const JOIN_TIMEOUT_MS = 15_000;
/** A connection that ends sooner than this is not followed by another at once. */
const SHORT_MS = 1_000;

export class Reconnector {
  readonly #options: ReconnectorOptions;
  #failures = 0;
  #stopped = false;
  #cancelCurrent: () => void = () => {};
  #joined = false;
  #everJoined = false;

  constructor(options: ReconnectorOptions) {
    this.#options = options;
    this.#connect();
  }

  get joined(): boolean {
    return this.#joined;
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#cancelCurrent();
  }

  #connect(): void {
    const { connect, onConnected, joinTimeoutMs = JOIN_TIMEOUT_MS } = this.#options;
    const aborter = new AbortController();
    const since = performance.now();
    let handler: ConnectionHandler | undefined;
    let over = false;
    const end = (failure: LaboroError | string): void => {
      if (over) return;
      over = true;
      clearTimeout(joinTimer);
      handler?.close();
      const joined = this.#joined && performance.now() - since > SHORT_MS;
      this.#joined = false;
      if (!this.#stopped) this.#ended(failure, joined);
    };
    let connection: ForemanConnection | undefined;
    const hangUp = (): void => {
      if (connection === undefined) aborter.abort();
      else connection.close();
    };
    const joinTimer = setTimeout(() => {
      hangUp();
      end("it said nothing");
    }, joinTimeoutMs);
    this.#cancelCurrent = () => {
      over = true;
      clearTimeout(joinTimer);
      handler?.close();
      hangUp();
    };
    const early: Buffer[] = [];
    connect(
      { message: (bytes) => (handler === undefined ? early.push(bytes) : handler.message(bytes)), closed: end },
      aborter.signal,
    ).then(
      (opened) => {
        connection = opened;
        if (over) {
          opened.close();
          return;
        }
        handler = onConnected(opened, () => {
          clearTimeout(joinTimer);
          this.#joined = true;
          this.#everJoined = true;
          this.#failures = 0;
        });
        for (const bytes of early.splice(0)) handler.message(bytes);
      },
      (cause: unknown) => end(asLaboroError(cause)),
    );
  }

  #ended(failure: LaboroError | string, atOnce: boolean): void {
    const { log, onRefused, onUnreachable, firstDelayMs = FIRST_DELAY_MS, maxDelayMs } = this.#options;
    if (typeof failure === "string") log.warn({}, `the connection to the foreman ended: ${failure}`);
    else if (this.#isFinal(failure)) {
      this.stop();
      onRefused(failure);
      return;
    } else onUnreachable(failure, this.#failures + 1);
    if (this.#stopped) return;
    const longest = maxDelayMs ?? MAX_DELAY_MS;
    const delay = atOnce ? 0 : Math.min(longest, firstDelayMs * 2 ** Math.min(this.#failures++, 20));
    const timer = setTimeout(() => this.#connect(), delay);
    this.#cancelCurrent = () => clearTimeout(timer);
  }

  /** A certificate that did and now does not hold is something passing; at the first try it is the name of the foreman that is wrong. */
  #isFinal({ code }: LaboroError): boolean {
    return code === "LABORO_BAD_TOKEN" || (code === "LABORO_BAD_CERTIFICATE" && !this.#everJoined);
  }
}
