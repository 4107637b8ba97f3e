/**
 * One end of a fuq v2 connection without its socket: whose turn it is, by sections 4 and 5 of the text. Messages and requests go in,
 * effects come out; what the requests mean is up to the caller. Both ends use it. Its states are in protocol-states.ts.
 *
 * At most one request of this end is unanswered; requests of the other end are given to the caller one by one, in order. While a reply is
 * waited for, lower requests are answered, higher ones wait in a queue, STOP(at once) waits for nothing. A RESET waits until nothing
 * lower is unanswered; of two that cross the lower one counts, because each end drops what is higher than the RESET that it knows of.
 */

import {
  ERRORS,
  isStopAtOnce,
  type Message,
  type Numbered,
  type Ok,
  type Reply,
  type Request,
  refusal,
  type Unreadable,
  wantsCounts,
} from "./messages.js";
import { OutgoingRequests, type SentRequest } from "./outgoing-requests.js";
import { type Effect, type Stage, type StateName, stateName } from "./protocol-states.js";
import { MAX_SEQUENCE, SequenceNumbers, type Side } from "./sequence-numbers.js";

export type { Effect, StateName } from "./protocol-states.js";

export interface ProtocolStateMachineOptions {
  readonly side: Side;
  /** Who speaks first: on a raw stream the foreman says OK(0), on a WebSocket the worker says HELLO. */
  readonly greeting: Side;
  /** The greatest sequence number; tests set one that they can reach. */
  readonly maxSequence?: number | undefined;
  /** Requests of the other end that wait here; one more is refused with ERROR(overflow). */
  readonly queueLimit?: number;
  /** The other end may be an original program, which does not know RESET: one is sent only where the numbers are used up. */
  readonly original?: boolean;
}

const QUEUE_LIMIT = 16;
const USED_UP = "the sequence numbers are used up";

export class ProtocolStateMachine<Tag> {
  readonly side: Side;
  readonly #greeting: Side;
  readonly #queueLimit: number;
  readonly #original: boolean;
  readonly #numbers: SequenceNumbers;
  #effects: Effect<Tag>[] = [];
  #stage: Stage = "new";
  /** The effect "begin" was given to the worker's end. */
  #begun = false;
  /** Requests of the other end that wait, in order. */
  #incoming: Numbered<Request>[] = [];
  /** The one that the caller owes the answer to. */
  #answering: Numbered<Request> | undefined;
  /** STOP(at once), which the caller has beside any other. */
  #stopAtOnce: Numbered<Request> | undefined;
  readonly #outgoing = new OutgoingRequests<Tag>();
  #reset: { readonly by: "us" | "them"; readonly seq: number } | undefined;
  #resetWanted = false;
  /** The number of the last reply that was given. */
  #lastReply = 0;

  constructor({ side, greeting, maxSequence, queueLimit, original }: ProtocolStateMachineOptions) {
    this.side = side;
    this.#greeting = greeting;
    this.#queueLimit = queueLimit ?? QUEUE_LIMIT;
    this.#original = original ?? false;
    this.#numbers = new SequenceNumbers(side, maxSequence ?? MAX_SEQUENCE);
  }

  get state(): StateName {
    return stateName(this.side, {
      stage: this.#stage,
      pendingRequest: this.#outgoing.inFlight?.request.type,
      answering: this.#answering?.type,
      queuedRequests: this.#outgoing.queuedCount,
    });
  }

  /** A request would go out at once. */
  get idle(): boolean {
    return this.#stage === "open" && this.#outgoing.queuedCount === 0 && this.#free && this.#reset === undefined;
  }

  /** Requests of this end that have no reply yet, sent or not. */
  get unanswered(): readonly Tag[] {
    return this.#outgoing.unanswered;
  }

  start(): Effect<Tag>[] {
    this.#greet();
    return this.#take();
  }

  receive(message: Message | Unreadable): Effect<Tag>[] {
    if (message.type === "OK" || message.type === "ERROR") this.#onReply(message);
    else if (message.type === "RESET") this.#onReset(message.seq);
    else this.#onRequest(message);
    return this.#advance();
  }

  /** HELLO goes out before anything that waits, STOP(at once) beside it. */
  request(request: Request, tag: Tag): Effect<Tag>[] {
    const mayHurry = this.#stage === "open" && this.#reset === undefined && this.#outgoing.maySendUrgent;
    if (isStopAtOnce(request) && mayHurry && !this.#numbers.mustReset) {
      const seq = this.#sendRequest(request);
      if (seq !== undefined) this.#outgoing.sentUrgent(request, tag, seq);
    } else this.#outgoing.add(request, tag);
    return this.#advance();
  }

  /** A request whose number is above all that the other end may be waiting for since an older connection. */
  requestWithSkippedNumbers(request: Request, tag: Tag): Effect<Tag>[] {
    this.#numbers.skipAhead();
    return this.request(request, tag);
  }

  /** The caller's answer to a request. One that a RESET has swept away is not sent. */
  answer(seq: number, reply: Reply): Effect<Tag>[] {
    if (this.#stopAtOnce?.seq === seq) {
      this.#stopAtOnce = undefined;
      this.#reply(seq, reply);
    } else if (this.#answering?.seq === seq) {
      const { type } = this.#answering;
      this.#answering = undefined;
      this.#reply(seq, reply);
      if (type === "HELLO" && reply.type === "OK" && this.#stage === "greeting") this.#stage = "open";
    }
    return this.#advance();
  }

  /** Restarts the sequence numbers, when all that is under way is answered. To an original program only where there is no other way. */
  reset(): Effect<Tag>[] {
    if (!this.#original && this.#stage === "open") this.#resetWanted = true;
    return this.#advance();
  }

  /** What ERROR(overflow) holds up goes out now: no reply came that would have let it. */
  retry(): Effect<Tag>[] {
    this.#outgoing.retry();
    return this.#advance();
  }

  /** This end asks nothing more; what it was asked it still answers. */
  exit(atOnce = false): void {
    this.#stage = atOnce ? "exit at once" : "exit";
    this.#outgoing.clearQueue();
  }

  #greet(): void {
    this.#stage = "greeting";
    this.#begun = false;
    if (this.#greeting === "worker") this.#begin();
    // Numbered 0, and uses up no number.
    else if (this.side === "foreman") this.#send({ type: "OK", nproc: 0, nrun: 0, seq: 0 });
  }

  #begin(): void {
    if (this.side === "foreman" || this.#begun) return;
    this.#begun = true;
    this.#effects.push({ kind: "begin" });
  }

  #onReply(reply: Numbered<Reply>): void {
    const { seq } = reply;
    const sent = this.#outgoing.answered(seq);
    if (sent !== undefined) {
      this.#settle(sent, reply);
    } else if (this.#reset?.by === "us" && seq === this.#reset.seq) {
      this.#reset = undefined;
      this.#violation("RESET was answered, but not by RESET");
    } else if (reply.type !== "OK" || !this.#isGreeting(reply)) {
      this.#numbers.replyReceived(seq);
      this.#violation(`a reply to ${seq}, which was not asked`);
    }
  }

  #settle(sent: SentRequest<Tag>, reply: Numbered<Reply>): void {
    const { request, tag } = sent;
    this.#numbers.replyReceived(reply.seq);
    if (reply.type === "OK") {
      this.#outgoing.countGoodReply();
      if ((request.type === "HELLO" || wantsCounts(request)) && this.#stage === "greeting") this.#stage = "open";
    } else if (reply.code === ERRORS.overflow && !this.#stage.startsWith("exit")) {
      this.#outgoing.overflow(sent);
      this.#effects.push({ kind: "overflow" });
      return;
    }
    this.#effects.push({ kind: "reply", request, tag, reply });
  }

  /** OK(0) to a worker, OK(nproc) to a foreman: neither is a reply. */
  #isGreeting(ok: Numbered<Ok>): boolean {
    if (this.#stage !== "greeting" || this.#greeting !== "foreman") return false;
    if (this.side === "worker") {
      this.#begin();
      return true;
    }
    if (this.#answering !== undefined || this.#incoming.length > 0) return false;
    // A plain number has nothing in its upper half.
    const numProcs = ok.nproc === 0 ? ok.nrun : ok.nproc;
    this.#answering = { type: "HELLO", hello: { numProcs, running: null }, seq: ok.seq };
    this.#effects.push({ kind: "request", request: this.#answering });
    return true;
  }

  #onRequest(message: Exclude<Message, Reply> | Unreadable): void {
    const { seq } = message;
    if (!this.#mayHave(seq)) return;
    this.#numbers.requestReceived(seq);
    if (this.#numbers.otherSideUsedUp) this.#resetWanted = true;
    if (message.type === "?" || message.type === "LIST" || message.type === "RESET" || !this.#isForThisSide(message)) {
      this.#violation(message.type === "?" ? message.why : `${message.type} is not for this side`);
      this.#send({ ...refusal("bad_message"), seq });
    } else if (isStopAtOnce(message)) {
      this.#stopAtOnce = message;
      this.#effects.push({ kind: "request", request: message });
    } else if (this.#incoming.length >= this.#queueLimit && !(this.#incoming.length === 0 && this.#mayDeliver(seq))) {
      this.#violation(`more than ${this.#queueLimit} requests at a time`);
      this.#send({ ...refusal("overflow"), seq });
    } else {
      this.#incoming.push(message);
    }
  }

  /** Whether a request may have this number; what may not is answered or dropped here. */
  #mayHave(seq: number): boolean {
    const wrong = this.#numbers.rejectionOf(seq);
    if (wrong !== undefined) {
      this.#violation(wrong);
      this.#send({ ...refusal("bad_seq"), seq });
      return false;
    }
    // By c) of section 5 it is dropped without a reply, and comes again.
    return this.#reset === undefined || seq < this.#reset.seq;
  }

  #isForThisSide({ type }: Request): boolean {
    return (type === "HELLO" || type === "UPDATE") === (this.side === "foreman");
  }

  #onReset(seq: number): void {
    if (this.#reset?.by === "us" && seq === this.#reset.seq) {
      this.#restart();
      return;
    }
    // Of two that cross, the other end has dropped that of this end if it is the higher one.
    if (!this.#mayHave(seq)) return;
    this.#numbers.requestReceived(seq);
    this.#reset = { by: "them", seq };
    // What is higher will have no reply: it is asked again later.
    this.#outgoing.requeueAbove(seq);
  }

  /** Nothing is unanswered on either side. */
  get #free(): boolean {
    const theirs = this.#answering ?? this.#stopAtOnce;
    return this.#outgoing.noneInFlight && theirs === undefined && this.#incoming.length === 0;
  }

  /** Whatever is possible now. */
  #advance(): Effect<Tag>[] {
    this.#deliver();
    if (this.#free) {
      if (this.#reset?.by === "them") {
        this.#send({ type: "RESET", lastReply: this.#lastReply, seq: this.#reset.seq });
        this.#restart();
      } else if (this.#reset === undefined) this.#sendNextRequest();
    }
    return this.#take();
  }

  /** The request of this number, if it is the first that waits, need not wait. Before the greeting is over none does. */
  #mayDeliver(seq: number): boolean {
    const { inFlight } = this.#outgoing;
    const mayPass =
      inFlight === undefined || seq < inFlight.seq || (this.side === "foreman" && this.#stage === "greeting");
    return this.#answering === undefined && mayPass;
  }

  #deliver(): void {
    const [first] = this.#incoming;
    if (first === undefined || !this.#mayDeliver(first.seq)) return;
    this.#incoming.shift();
    this.#answering = first;
    this.#effects.push({ kind: "request", request: first });
  }

  #sendNextRequest(): void {
    const { first, overflowed } = this.#outgoing;
    const mayGreet =
      first !== undefined && (this.side === "foreman" ? wantsCounts(first) : this.#begun && first.type === "HELLO");
    if (this.#stage !== "open" && !(this.#stage === "greeting" && mayGreet)) return;
    if (this.#resetWanted || (first !== undefined && this.#numbers.mustReset)) this.#askReset();
    else if (first !== undefined && !overflowed) {
      const seq = this.#sendRequest(first);
      if (seq !== undefined) this.#outgoing.sent(seq);
    }
  }

  #askReset(): void {
    const seq = this.#number();
    if (seq === undefined) return;
    this.#resetWanted = false;
    this.#reset = { by: "us", seq };
    this.#send({ type: "RESET", lastReply: this.#lastReply, seq });
  }

  #sendRequest(request: Request): number | undefined {
    const seq = this.#number();
    if (seq !== undefined) this.#send({ ...request, seq });
    return seq;
  }

  #number(): number | undefined {
    const { next } = this.#numbers;
    if (next === undefined) this.#effects.push({ kind: "broken", why: USED_UP });
    else this.#numbers.advance();
    return next;
  }

  #restart(): void {
    this.#numbers.restart();
    // An end that keeps to the rules has left nothing unanswered.
    this.#outgoing.restart();
    this.#answering = undefined;
    this.#stopAtOnce = undefined;
    this.#incoming = [];
    this.#reset = undefined;
    this.#resetWanted = false;
    this.#lastReply = 0;
    this.#effects.push({ kind: "restarted" });
    if (!this.#stage.startsWith("exit")) this.#greet();
  }

  #reply(seq: number, reply: Reply): void {
    this.#lastReply = seq;
    if (reply.type === "OK") this.#outgoing.countGoodReply();
    this.#send({ ...reply, seq });
  }

  #send(message: Message): void {
    this.#effects.push({ kind: "send", message });
  }

  #violation(why: string): void {
    this.#effects.push({ kind: "violation", why });
  }

  #take(): Effect<Tag>[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }
}
