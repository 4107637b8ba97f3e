/**
 * How a worker reaches its foreman: the interface `Transport`, and its implementation with a persistent connection,
 * which is opened again when it breaks.
 *
 *   connecting  one try
 *   open        connected; the session reports when it has joined
 *   waiting     the try failed, or the connection ended before it joined: the next try comes after 1, 2, 4 … seconds
 *   closed      no more tries
 *
 * After a connection that had joined, the next try is made at once, as in the original.
 */
import { asLaboroError, type LaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { Connect, ForemanConnection } from "./foreman-http.js";
import type { RunningTasks } from "./running-tasks.js";

export interface Transport {
  readonly joined: boolean;
  /** A task has ended. */
  sendUpdates(): void;
  /** No new tasks: running ones end and are reported, then `onFinished` is called. */
  leave(): Promise<void>;
  /** Nothing is sent any more. */
  close(): void;
}

export interface TransportOptions {
  readonly tasks: RunningTasks;
  readonly log: Log;
  readonly firstDelayMs: number | undefined;
  readonly onJoined: () => void;
  /** The foreman refuses this worker. There are no more tries. */
  readonly onRefused: (error: LaboroError) => void;
  /** The foreman could not be reached `times` times in a row. */
  readonly onUnreachable: (error: LaboroError, times: number) => void;
  /** The worker must end: all tasks are reported, or STOP(at once) was received. */
  readonly onFinished: () => void;
}

/** Between two tries to reach the foreman. Doubles with each that fails. */
export const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 60_000;

export const retryDelay = (firstMs = FIRST_DELAY_MS, failures: number): number =>
  Math.min(MAX_DELAY_MS, firstMs * 2 ** Math.min(failures, 20));

/** A bad certificate is final at the first try only. If the worker had joined before, it may be a temporary error. */
export const isFinal = ({ code }: LaboroError, everJoined: boolean): boolean =>
  code === "LABORO_BAD_TOKEN" || (code === "LABORO_BAD_CERTIFICATE" && !everJoined);

/** One connection, with one version of the protocol. */
export interface ProtocolSession {
  start(): void;
  onMessage(bytes: Buffer): void;
  sendUpdates(): void;
  /** Ends the worker if it has no task and will get none. */
  finishIfDone(): void;
  close(): void;
}

export interface ProtocolSessionEvents {
  readonly send: (bytes: Buffer) => void;
  readonly onJoined: () => void;
  /** This connection cannot be used any more. */
  readonly onBroken: (why: string) => void;
  readonly onFinished: () => void;
}

interface PersistentTransportOptions extends TransportOptions {
  readonly connect: Connect;
  readonly createSession: (events: ProtocolSessionEvents) => ProtocolSession;
  /** Asks the foreman to stop this worker. False if it did not accept. */
  readonly requestStop?: () => Promise<boolean>;
}

/** How long the foreman may take until the session has joined. */
const JOIN_TIMEOUT_MS = 15_000;
/** After a connection that ended sooner than this the next try is not made at once. */
const SHORT_MS = 1_000;
/** How long the foreman may take to stop this worker once it has no task left. */
const STOP_MS = 5_000;

export class PersistentTransport implements Transport {
  readonly #options: PersistentTransportOptions;
  #session: ProtocolSession | undefined;
  #joined = false;
  #everJoined = false;
  #failures = 0;
  #closed = false;
  /** Ends the try, the connection, or the wait for the next try. */
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
      end(`it did not complete the greeting within ${JOIN_TIMEOUT_MS / 1_000} s`);
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
        log.warn({}, `the connection to the foreman is closed: ${why}`);
        connection.close();
      },
      onFinished,
    });
    this.#session.start();
  }

  #connectAgain(failure: LaboroError | string, atOnce: boolean): void {
    const { log, onRefused, onUnreachable, firstDelayMs } = this.#options;
    if (typeof failure === "string")
      log.warn({}, `the connection to the foreman ended, the worker reconnects: ${failure}`);
    else if (isFinal(failure, this.#everJoined)) {
      this.close();
      onRefused(failure);
    } else onUnreachable(failure, this.#failures + 1);
    if (this.#closed) return;
    const timer = setTimeout(() => this.#connect(), atOnce ? 0 : retryDelay(firstDelayMs, this.#failures++));
    this.#cancelCurrent = () => clearTimeout(timer);
  }

  /** The foreman must stop this worker, because the original loses a task that a worker refuses. */
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
