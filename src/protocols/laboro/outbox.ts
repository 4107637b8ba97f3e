/**
 * Collects what is sent within one turn of the event loop into one frame. A frame stays under FRAME_TARGET unless a single message is
 * larger; then that message goes alone.
 *
 * Messages become bytes when they are pushed: a bad one is refused to its sender, later changes to it do no harm, and the
 * number of waiting bytes is exact.
 */
import { FrameBuilder } from "./codec.js";
import { MESSAGES_LIMIT } from "./codec-fields.js";
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
  readonly #makeRoom = (bytes: number): void => {
    const { bytes: waiting, count } = this.#frame;
    if (waiting + bytes > FRAME_TARGET || count === MESSAGES_LIMIT) this.flush();
  };
  readonly #frame = new FrameBuilder();
  #scheduled = false;

  constructor(transmit: (frame: Uint8Array) => void, schedule: Schedule = process.nextTick) {
    this.#transmit = transmit;
    this.#schedule = schedule;
  }

  /** Bytes that wait for the next frame. */
  get bytes(): number {
    return this.#frame.bytes;
  }

  push(message: LinkMessage): void {
    this.#frame.add(message, this.#makeRoom);
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#schedule(this.#endOfTurn);
  }

  flush(): void {
    if (this.#frame.count > 0) this.#transmit(this.#frame.take());
  }

  clear(): void {
    this.#frame.clear();
  }
}
