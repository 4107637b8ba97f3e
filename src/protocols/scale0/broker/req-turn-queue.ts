/**
 * A worker behind a REQ socket hears one thing for each thing that it says, and nothing in between.
 *
 *   silent   it has had its answer: what there is to say waits until it speaks again
 *   asking   it has spoken and waits. What was kept for it comes first, and takes the place of a PONG; a PONG alone is held back for a
 *            moment, because a request may come that could otherwise only be heard after the next PING
 */
import type { Message } from "../frames.js";

/** Longer than a request needs to get here, shorter than anybody takes a broker for dead. */
const PONG_DELAY_MS = 1_000;
/** Of what waits for it. There is little: it has few slots, and of each kind but requests only the last is of use. */
const MAX_QUEUED = 1_000;

export class ReqTurnQueue {
  readonly #send: (message: Message) => boolean;
  #queued: Message[] = [];
  #state: "silent" | "asking" = "silent";
  #delayedPong: { readonly pong: Message; readonly timer: NodeJS.Timeout } | undefined;
  /** CONFIG was the last thing that it heard: the PONG after that ends its startup, and comes at once. */
  #starting = false;

  constructor(send: (message: Message) => boolean) {
    this.#send = send;
  }

  received(): void {
    this.end();
    this.#state = "asking";
  }

  /** False where it is not there to hear it, now or later. */
  send(message: Message): boolean {
    if (message.command === "PONG") return this.#pong(message);
    this.#dropSuperseded(message);
    // That it is unknown is said each time; why it is, once.
    const first = message.command === "FORCENEGOTIATE" && this.#state === "asking" ? this.#queued.shift() : undefined;
    if (this.#state === "asking") return this.#answer(first ?? message);
    if (this.#queued.length >= MAX_QUEUED) return false;
    this.#queued.push(message);
    return true;
  }

  /** Where nobody had an answer, it is this: or it could not go on. */
  replyIfUnanswered(answer: () => Message): void {
    if (this.#state === "asking" && this.#delayedPong === undefined) this.#answer(this.#queued.shift() ?? answer());
  }

  end(): void {
    clearTimeout(this.#delayedPong?.timer);
    this.#delayedPong = undefined;
  }

  #pong(pong: Message): boolean {
    // One that it did not ask for is of no use to it.
    if (this.#state === "silent" || this.#delayedPong !== undefined) return true;
    const first = this.#queued.shift();
    if (first !== undefined || this.#starting) return this.#answer(first ?? pong);
    this.#delayedPong = { pong, timer: setTimeout(() => this.#answer(pong), PONG_DELAY_MS) };
    return true;
  }

  /** What is kept and holds no longer: nothing does after DISCONNECTERROR, requests do after anything else, all else until it is said anew. */
  #dropSuperseded({ command }: Message): void {
    if (command === "DISCONNECTERROR") this.#queued = [];
    else if (command === "CONFIG") this.#queued = this.#queued.filter(isRequest);
    else this.#queued = this.#queued.filter((one) => isRequest(one) || one.command !== command);
  }

  #answer(message: Message): boolean {
    this.end();
    this.#state = "silent";
    this.#starting = message.command === "CONFIG";
    return this.#send(message);
  }
}

const isRequest = ({ command }: Message): boolean => command === "WORKREQUEST" || command === "TASK";
