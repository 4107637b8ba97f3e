/** In touch with a foreman by a connection that stays, and is made anew when it breaks. */
import type { Log } from "../../../base/log.js";
import { Attendance } from "./attendance.js";
import type { Tasks } from "./tasks.js";
import type { Speaker, SpeakerEvents, Way, WayEvents } from "./way.js";
import type { Connect } from "./wire.js";

export interface PersistentOptions extends WayEvents {
  readonly tasks: Tasks;
  readonly log: Log;
  readonly connect: Connect;
  readonly speak: (events: SpeakerEvents) => Speaker;
  /** Asks the foreman to stop this worker; false where it cannot be asked. */
  readonly askToStop?: () => Promise<boolean>;
  readonly firstDelayMs?: number;
}

/** How long a foreman that was asked to stop us may take for it, once there is nothing more to do here. */
const STOP_MS = 5_000;

export class Persistent implements Way {
  readonly #options: PersistentOptions;
  readonly #attendance: Attendance;
  #speaker: Speaker | undefined;
  #leaving = false;
  #giveUp: NodeJS.Timeout | undefined;

  constructor(options: PersistentOptions) {
    const { connect, log, onRefused, onUnreachable, firstDelayMs } = options;
    this.#options = options;
    this.#attendance = new Attendance({
      ...{ connect, log, onRefused, onUnreachable },
      visit: (wire, joined) => {
        const speaker = options.speak({
          send: (bytes) => wire.send(bytes),
          onJoined: () => {
            joined();
            options.onJoined();
            this.#lookLater();
          },
          onBroken: (why) => {
            log.warn({}, `the connection to the foreman is given up: ${why}`);
            wire.close();
          },
          onOver: () => options.onOver(),
        });
        this.#speaker = speaker;
        speaker.begin();
        return {
          message: (bytes) => {
            speaker.received(bytes);
            this.#lookLater();
          },
          close: () => {
            speaker.close();
            if (this.#speaker === speaker) this.#speaker = undefined;
          },
        };
      },
      ...(firstDelayMs === undefined ? {} : { firstDelayMs }),
    });
  }

  get joined(): boolean {
    return this.#attendance.joined;
  }

  tell(): void {
    this.#speaker?.tell();
  }

  /**
   * A foreman that stops us itself gives us nothing more. The original would take a refusal for the end of the connection, and never give
   * the task to anybody again.
   */
  async leave(): Promise<void> {
    const { askToStop } = this.#options;
    const asked = askToStop !== undefined && (await askToStop());
    this.#leaving = true;
    if (asked) this.#lookLater();
    else this.#endHere();
  }

  #lookLater(): void {
    if (!this.#leaving || this.#giveUp !== undefined || this.#options.tasks.nrun > 0) return;
    this.#giveUp = setTimeout(() => this.#endHere(), STOP_MS);
  }

  #endHere(): void {
    this.#options.tasks.stop(0);
    this.#speaker?.lookWhetherOver();
  }

  close(): void {
    clearTimeout(this.#giveUp);
    this.#attendance.stop();
  }
}
