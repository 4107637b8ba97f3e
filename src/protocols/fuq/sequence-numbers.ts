/**
 * The sequence numbers of one end of a connection (section 4 of the text): even from the worker, odd from the foreman, rising, and
 * above all that was received.
 */
export type Side = "foreman" | "worker";

/** The greatest number that a header can carry. */
export const MAX_SEQUENCE = 0xffff_ffff;

/** Half of them: more than a worker that has not been here has used. */
const SKIP_TARGET = 2 ** 30;

export class SequenceNumbers {
  readonly #parity: number;
  /** The counter of the last two numbers, one for each side: what one side has used, the other can still go beyond, to RESET. */
  readonly #last: number;
  #counter = 0;
  /** The greatest number so far, of either side. */
  #highest = -1;
  #lastAsked = -1;
  #lastAnswered = -1;

  constructor(side: Side, max: number) {
    this.#parity = side === "foreman" ? 1 : 0;
    this.#last = Math.floor((max - 1) / 2);
  }

  restart(): void {
    this.#counter = 0;
    this.#highest = -1;
    this.#lastAsked = -1;
    this.#lastAnswered = -1;
  }

  /** The number that a request would have now; undefined where they are used up. The last one may be above the other side's last. */
  get next(): number | undefined {
    const next = Math.min(this.#counter, this.#last) * 2 + this.#parity;
    return next > this.#highest ? next : undefined;
  }

  /** The other side has used its last number: it cannot ask for a RESET. */
  get otherSideUsedUp(): boolean {
    return this.#lastAsked >= this.#last * 2 + 1 - this.#parity;
  }

  /** After a request with the next number there would be none left for a RESET. */
  get mustReset(): boolean {
    return this.#counter >= this.#last;
  }

  advance(): void {
    this.#advancePast(this.next ?? this.#highest);
  }

  /** What comes next is above all that the other side may be waiting for from an older connection. */
  skipAhead(): void {
    if (SKIP_TARGET < this.#last) this.#counter = Math.max(this.#counter, SKIP_TARGET);
  }

  isOwn(seq: number): boolean {
    return seq % 2 === this.#parity;
  }

  /** Why a request of the other side may not have this number; undefined where it may. */
  rejectionOf(seq: number): string | undefined {
    if (this.isOwn(seq)) return `request ${seq} has a number of this side`;
    if (seq <= this.#lastAsked) return `request ${seq} comes after request ${this.#lastAsked}`;
    if (seq < this.#lastAnswered) return `request ${seq} comes after the reply to ${this.#lastAnswered}`;
    return undefined;
  }

  requestReceived(seq: number): void {
    this.#lastAsked = seq;
    this.#advancePast(seq);
  }

  replyReceived(seq: number): void {
    if (this.isOwn(seq)) this.#lastAnswered = Math.max(this.#lastAnswered, seq);
    this.#advancePast(seq);
  }

  #advancePast(seq: number): void {
    this.#highest = Math.max(this.#highest, seq);
    this.#counter = Math.max(this.#counter, Math.floor(seq / 2) + 1);
  }
}
