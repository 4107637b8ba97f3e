/** A persistent connection to a foreman, which is opened again when it breaks. */
import type { Log } from "../../../base/log.js";
import type { Connect } from "./connection.js";
import type { ForemanTasks } from "./foreman-tasks.js";
import { Reconnector } from "./reconnector.js";
import type { ProtocolSession, ProtocolSessionEvents, Transport, TransportEvents } from "./transport.js";

export interface PersistentTransportOptions extends TransportEvents {
  readonly tasks: ForemanTasks;
  readonly log: Log;
  readonly connect: Connect;
  readonly createSession: (events: ProtocolSessionEvents) => ProtocolSession;
  /** Asks the foreman to stop this worker; false where it cannot be asked. */
  readonly requestStop?: () => Promise<boolean>;
  readonly firstDelayMs?: number;
}

/** How long a foreman may take to stop this worker, once it has no task left. */
const STOP_MS = 5_000;

export class PersistentTransport implements Transport {
  readonly #options: PersistentTransportOptions;
  readonly #reconnector: Reconnector;
  #session: ProtocolSession | undefined;
  #leaving = false;
  #stopTimer: NodeJS.Timeout | undefined;

  constructor(options: PersistentTransportOptions) {
    const { connect, log, onRefused, onUnreachable, firstDelayMs } = options;
    this.#options = options;
    this.#reconnector = new Reconnector({
      ...{ connect, log, onRefused, onUnreachable },
      onConnected: (connection, joined) => {
        const session = options.createSession({
          send: (bytes) => connection.send(bytes),
          onJoined: () => {
            joined();
            options.onJoined();
            this.#armStopTimer();
          },
          onBroken: (why) => {
            log.warn({}, `the connection to the foreman is given up: ${why}`);
            connection.close();
          },
          onFinished: () => options.onFinished(),
        });
        this.#session = session;
        session.start();
        return {
          message: (bytes) => {
            session.onMessage(bytes);
            this.#armStopTimer();
          },
          close: () => {
            session.close();
            if (this.#session === session) this.#session = undefined;
          },
        };
      },
      ...(firstDelayMs === undefined ? {} : { firstDelayMs }),
    });
  }

  get joined(): boolean {
    return this.#reconnector.joined;
  }

  sendUpdates(): void {
    this.#session?.sendUpdates();
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
    this.#reconnector.stop();
  }
}
