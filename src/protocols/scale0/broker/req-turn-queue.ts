/**
 * A worker behind a REQ socket receives one message for each message that it sends, and nothing in between.
 *
 *   idle      it has had its answer: messages wait until it sends again
 *   waiting   it has sent a message and waits. Queued messages come first, in the place of a PONG; a PONG alone is delayed for a moment,
 *             because a request may come that could otherwise only be sent after the next PING
 */
import type { Message } from "../frames.js";

/** Longer than a request needs to get here, shorter than the timeout after which a worker gives up its broker. */
const PONG_DELAY_MS = 1_000;
/** Queued messages. There are few: it has few slots, and of each kind but requests only the last one is kept. */
const MAX_QUEUED = 1_000;

export class ReqTurnQueue {
  readonly #send: (message: Message) => boolean;
  #queued: Message[] = [];
  #state: "idle" | "waiting" = "idle";
  #delayedPong: { readonly pong: Message; readonly timer: NodeJS.Timeout } | undefined;
  /** CONFIG was the last message to it: the PONG after that ends its startup, and is sent at once. */
  #starting = false;

  constructor(send: (message: Message) => boolean) {
    this.#send = send;
  }

  received(): void {
    this.end();
    this.#state = "waiting";
  }

  /** False where it cannot be sent, now or later. */
  send(message: Message): boolean {
    if (message.command === "PONG") return this.#pong(message);
    this.#dropSuperseded(message);
    // FORCENEGOTIATE is sent each time; the reason, which is queued, once.
    const first = message.command === "FORCENEGOTIATE" && this.#state === "waiting" ? this.#queued.shift() : undefined;
    if (this.#state === "waiting") return this.#answer(first ?? message);
    if (this.#queued.length >= MAX_QUEUED) return false;
    this.#queued.push(message);
    return true;
  }

  /** Sends this where nothing else was sent: without an answer a REQ socket cannot go on. */
  replyIfUnanswered(answer: () => Message): void {
    if (this.#state === "waiting" && this.#delayedPong === undefined) this.#answer(this.#queued.shift() ?? answer());
  }

  end(): void {
    clearTimeout(this.#delayedPong?.timer);
    this.#delayedPong = undefined;
  }

  #pong(pong: Message): boolean {
    // One that it did not ask for is of no use to it.
    if (this.#state === "idle" || this.#delayedPong !== undefined) return true;
    const first = this.#queued.shift();
    if (first !== undefined || this.#starting) return this.#answer(first ?? pong);
    this.#delayedPong = { pong, timer: setTimeout(() => this.#answer(pong), PONG_DELAY_MS) };
    return true;
  }

  /**
   * Removes queued messages that a new one makes obsolete: all for DISCONNECTERROR; else all but requests for CONFIG, or those of the
   * same command.
   */
  #dropSuperseded({ command }: Message): void {
    if (command === "DISCONNECTERROR") this.#queued = [];
    else if (command === "CONFIG") this.#queued = this.#queued.filter(isRequest);
    else this.#queued = this.#queued.filter((one) => isRequest(one) || one.command !== command);
  }

  #answer(message: Message): boolean {
    this.end();
    this.#state = "idle";
    this.#starting = message.command === "CONFIG";
    return this.#send(message);
  }
}

const isRequest = ({ command }: Message): boolean => command === "WORKREQUEST" || command === "TASK";
