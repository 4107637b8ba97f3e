/** The sequence numbers of one side (section 4): even from the worker, odd from the foreman, above all received. */
export type Side = "foreman" | "worker";

/** The largest number that fits into a header. */
export const MAX_SEQUENCE = 0xffff_ffff;

/** Half of all numbers: more than a worker has used on an older connection. */
const SKIP_TARGET = 2 ** 30;

export class SequenceNumbers {
  readonly #parity: number;
  /** The counter of the last pair of numbers. After the lower one a RESET with the higher one is still possible. */
  readonly #last: number;
  #counter = 0;
  /** The largest number so far, of either side. */
  #highest = -1;
  #lastRequest = -1;
  #lastReply = -1;

  constructor(side: Side, max: number) {
    this.#parity = side === "foreman" ? 1 : 0;
    this.#last = Math.floor((max - 1) / 2);
  }

  restart(): void {
    this.#counter = 0;
    this.#highest = -1;
    this.#lastRequest = -1;
    this.#lastReply = -1;
  }

  /** The number of a new request. Undefined if all are used up. */
  take(): number | undefined {
    const next = Math.min(this.#counter, this.#last) * 2 + this.#parity;
    if (next <= this.#highest) return undefined;
    this.#advancePast(next);
    return next;
  }

  /** The other side has used its last number, so it cannot send RESET. */
  get otherSideUsedUp(): boolean {
    return this.#lastRequest >= this.#last * 2 + 1 - this.#parity;
  }

  /** The next number is the last one, which is for RESET. */
  get mustReset(): boolean {
    return this.#counter >= this.#last;
  }

  /** The next number is above all that the other side may be waiting for since an older connection. */
  skipAhead(): void {
    if (SKIP_TARGET < this.#last) this.#counter = Math.max(this.#counter, SKIP_TARGET);
  }

  /** Why a request of the other side may not have this number. */
  rejectionOf(seq: number): string | undefined {
    if (seq % 2 === this.#parity) return `request ${seq} has a number of this side`;
    if (seq <= this.#lastRequest) return `request ${seq} comes after request ${this.#lastRequest}`;
    if (seq < this.#lastReply) return `request ${seq} comes after the reply to ${this.#lastReply}`;
    return undefined;
  }

  requestReceived(seq: number): void {
    this.#lastRequest = seq;
    this.#advancePast(seq);
  }

  replyReceived(seq: number): void {
    if (seq % 2 === this.#parity) this.#lastReply = Math.max(this.#lastReply, seq);
    this.#advancePast(seq);
  }

  #advancePast(seq: number): void {
    this.#highest = Math.max(this.#highest, seq);
    this.#counter = Math.max(this.#counter, Math.floor(seq / 2) + 1);
  }
}
