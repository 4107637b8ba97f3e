/**
 * Collects what is sent within one turn of the event loop into one frame. A frame stays under FRAME_TARGET unless a single message is
 * larger; then that message goes alone.
 *
 * Messages become bytes when they are pushed: a bad one is refused to its sender, later changes to it do no harm, and the
 * number of waiting bytes is exact.
 */
import { encodeMessage, joinMessages } from "./codec.js";
import { MESSAGES_LIMIT } from "./codec-limits.js";
import type { LinkMessage } from "./messages.js";

export const FRAME_TARGET = 1024 * 1024;

export type Schedule = (flush: () => void) => void;

export class Outbox {
  readonly #transmit: (frame: Uint8Array) => void;
  readonly #schedule: Schedule;
  readonly #endOfTurn = (): void => {
    this.#scheduled = false;
    this.flush();
  };
  #waiting: Uint8Array[] = [];
  #bytes = 0;
  #scheduled = false;

  constructor(transmit: (frame: Uint8Array) => void, schedule: Schedule = process.nextTick) {
    this.#transmit = transmit;
    this.#schedule = schedule;
  }

  /** Bytes that wait for the next frame. */
  get bytes(): number {
    return this.#bytes;
  }

  push(message: LinkMessage): void {
    const encoded = encodeMessage(message);
    const full = this.#bytes + encoded.length > FRAME_TARGET || this.#waiting.length === MESSAGES_LIMIT;
    if (full) this.flush();
    if (!this.#scheduled) {
      this.#scheduled = true;
      this.#schedule(this.#endOfTurn);
    }
    this.#waiting.push(encoded);
    this.#bytes += encoded.length;
  }

  flush(): void {
    if (this.#waiting.length === 0) return;
    const frame = joinMessages(this.#waiting);
    this.clear();
    this.#transmit(frame);
  }

  clear(): void {
    this.#waiting = [];
    this.#bytes = 0;
  }
}
