/**
 * A persistent connection to a foreman, which is opened again when it breaks.
 *
 *   connecting  one try
 *   open        connected; the session reports when it has joined
 *   waiting     the try has failed, or the connection ended before it joined: the next try comes after 1, 2, 4 … seconds
 *   closed      nothing is tried any more
 *
 * After a connection that had joined, the next try is made at once, as the original makes it.
 */
import { asLaboroError, type LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { ForemanTasks } from "./foreman-tasks.js";
import {
  type Connect,
  type ForemanConnection,
  isFinal,
  type ProtocolSession,
  type ProtocolSessionEvents,
  retryDelay,
  type Transport,
  type TransportEvents,
} from "./transport.js";

interface PersistentTransportOptions extends TransportEvents {
  readonly tasks: ForemanTasks;
  readonly log: Log;
  readonly connect: Connect;
  readonly createSession: (events: ProtocolSessionEvents) => ProtocolSession;
  /** Asks the foreman to stop this worker; false where it cannot be asked. */
  readonly requestStop?: () => Promise<boolean>;
  readonly firstDelayMs: number | undefined;
}

/** A foreman that says nothing for so long after the connection has come up is not waited for. */
const JOIN_TIMEOUT_MS = 15_000;
/** A connection that ends sooner than this is not followed by another at once. */
const SHORT_MS = 1_000;
/** How long a foreman may take to stop this worker, once it has no task left. */
const STOP_MS = 5_000;

export class PersistentTransport implements Transport {
  readonly #options: PersistentTransportOptions;
  #session: ProtocolSession | undefined;
  #joined = false;
  #everJoined = false;
  #failures = 0;
  #closed = false;
  /** Ends the try or the connection, or the wait for the next one. */
  #cancelCurrent: () => void = () => {};
  #leaving = false;
  #stopTimer: NodeJS.Timeout | undefined;

  constructor(options: PersistentTransportOptions) {
    this.#options = options;
    this.#connect();
  }

  get joined(): boolean {
    return this.#joined;
  }

  sendUpdates(): void {
    this.#session?.sendUpdates();
  }

  #connect(): void {
    const aborter = new AbortController();
    const since = performance.now();
    let connection: ForemanConnection | undefined;
    let over = false;
    const hangUp = (): void => {
      if (connection === undefined) aborter.abort();
      else connection.close();
    };
    const finish = (): void => {
      over = true;
      clearTimeout(joinTimer);
      this.#session?.close();
      this.#session = undefined;
    };
    const end = (failure: LaboroError | string): void => {
      if (over) return;
      finish();
      const joined = this.#joined && performance.now() - since > SHORT_MS;
      this.#joined = false;
      this.#connectAgain(failure, joined);
    };
    const joinTimer = setTimeout(() => {
      hangUp();
      end("it said nothing");
    }, JOIN_TIMEOUT_MS);
    this.#cancelCurrent = () => {
      finish();
      hangUp();
    };
    const message = (bytes: Buffer): void => {
      this.#session?.onMessage(bytes);
      this.#armStopTimer();
    };
    this.#options.connect({ message, closed: end }, aborter.signal).then(
      (opened) => {
        connection = opened;
        if (over) opened.close();
        else this.#startSession(opened, joinTimer);
      },
      (cause: unknown) => end(asLaboroError(cause)),
    );
  }

  #startSession(connection: ForemanConnection, joinTimer: NodeJS.Timeout): void {
    const { createSession, log, onJoined, onFinished } = this.#options;
    this.#session = createSession({
      send: (bytes) => connection.send(bytes),
      onJoined: () => {
        clearTimeout(joinTimer);
        this.#joined = true;
        this.#everJoined = true;
        this.#failures = 0;
        onJoined();
        this.#armStopTimer();
      },
      onBroken: (why) => {
        log.warn({}, `the connection to the foreman is given up: ${why}`);
        connection.close();
      },
      onFinished,
    });
    this.#session.start();
  }

  #connectAgain(failure: LaboroError | string, atOnce: boolean): void {
    const { log, onRefused, onUnreachable, firstDelayMs } = this.#options;
    if (typeof failure === "string") log.warn({}, `the connection to the foreman ended: ${failure}`);
    else if (isFinal(failure, this.#everJoined)) {
      this.close();
      onRefused(failure);
    } else onUnreachable(failure, this.#failures + 1);
    if (this.#closed) return;
    const timer = setTimeout(() => this.#connect(), atOnce ? 0 : retryDelay(firstDelayMs, this.#failures++));
    this.#cancelCurrent = () => clearTimeout(timer);
  }

  /**
   * A foreman that stops this worker assigns nothing more to it. The original would take a refusal for the end of the connection, and
   * never give the task to anybody again.
   */
  async leave(): Promise<void> {
    const { requestStop } = this.#options;
    const asked = requestStop !== undefined && (await requestStop());
    this.#leaving = true;
    if (asked) this.#armStopTimer();
    else this.#stopLocally();
  }

  #armStopTimer(): void {
    if (!this.#leaving || this.#stopTimer !== undefined || this.#options.tasks.nrun > 0) return;
    this.#stopTimer = setTimeout(() => this.#stopLocally(), STOP_MS);
  }

  #stopLocally(): void {
    this.#options.tasks.stop(0);
    this.#session?.finishIfDone();
  }

  close(): void {
    clearTimeout(this.#stopTimer);
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelCurrent();
  }
}
