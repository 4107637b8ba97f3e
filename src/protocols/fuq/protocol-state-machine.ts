/**
 * One side of a fuq v2 connection, without its socket: which side may send, by sections 4 and 5 of the specification.
 * Messages and requests go in, effects come out. Both sides use it. The states have the names of the specification:
 *
 *   foreman   SV_INIT0    initial
 *             SV_INIT1    waits for HELLO, or for OK(nproc)
 *             SV_INIT2    has received it, and must send the OK
 *             SV_LOOP0    may send a request
 *             SV_LOOP1    waits for the reply to its request
 *             SV_LOOP2    must send the OK to an UPDATE
 *             SV_EXIT     sends no more requests
 *   worker    CL_INIT0    waits for OK(0), or has not sent HELLO yet
 *             CL_INIT1    waits for the OK to its HELLO
 *             CL_LOOP0    waits for requests
 *             CL_UPDATE0  has an UPDATE to send
 *             CL_UPDATE1  waits for the OK to it
 *             CL_EXIT0    ends gracefully
 *             CL_EXIT1    ends at once
 *
 * A side has at most one unanswered request, and a STOP(at once), which does not wait. While it waits for a reply, it
 * answers requests with lower numbers and queues higher ones. A RESET waits until no lower request is unanswered.
 * Higher requests are dropped, and sent again after the HELLO. If two RESETs cross, the lower one counts, because each
 * side drops requests above the RESET that it knows.
 */
import {
  type Body,
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
import { MAX_SEQUENCE, SequenceNumbers, type Side } from "./sequence-numbers.js";

/** What the caller must do, in this order. `Tag` is what the caller passed with its request. */
export type Effect<Tag> =
  | { readonly kind: "send"; readonly message: Message }
  /** A request of the other side, to be answered with `answer`. An OK(nproc) as greeting is reported as a HELLO. */
  | { readonly kind: "request"; readonly request: Numbered<Request> }
  | { readonly kind: "reply"; readonly request: Request; readonly tag: Tag; readonly reply: Numbered<Reply> }
  /** A request was refused with ERROR(overflow). It waits for a successful reply of either side, or for `retry`. */
  | { readonly kind: "overflow" }
  /** The worker must request HELLO. */
  | { readonly kind: "begin" }
  /** RESET: the protocol starts again. Requests without a reply are sent again after the HELLO. */
  | { readonly kind: "restarted" }
  /** The other side violated the protocol. It was answered, or the violation is harmless. */
  | { readonly kind: "violation"; readonly why: string }
  | { readonly kind: "broken"; readonly why: string };

export interface ProtocolStateMachineOptions {
  readonly side: Side;
  /** Which side sends first: on a raw stream the foreman sends OK(0), on a WebSocket the worker sends HELLO. */
  readonly greeting: Side;
  readonly maxSequence?: number | undefined;
  /** How many requests of the other side may wait. Further ones are refused with ERROR(overflow). */
  readonly queueLimit?: number;
  /** The other side may be an original, which does not know RESET: it is sent only if the numbers are used up. */
  readonly original?: boolean;
}

interface OwnRequest<Tag> {
  readonly request: Request;
  readonly tag: Tag;
  /** It is sent, or sent again after ERROR(overflow), after this many successful replies. */
  readonly notBefore: number;
}

interface SentRequest<Tag> extends OwnRequest<Tag> {
  readonly seq: number;
  /** A STOP(at once) that did not wait for its turn. */
  readonly urgent: boolean;
}

const QUEUE_LIMIT = 16;

export class ProtocolStateMachine<Tag> {
  readonly #options: ProtocolStateMachineOptions;
  readonly #numbers: SequenceNumbers;
  readonly #effects: Effect<Tag>[] = [];
  #stage: "new" | "greeting" | "open" | "exit" | "exit at once" = "new";
  #begun = false;
  #incoming: Numbered<Request>[] = [];
  /** The request that the caller is answering, and a STOP(at once) beside it. */
  #answering: Numbered<Request> | undefined;
  #stopAtOnce: Numbered<Request> | undefined;
  #queue: OwnRequest<Tag>[] = [];
  /** Unanswered: at most one request, and one urgent one. */
  #sent: SentRequest<Tag>[] = [];
  #goodReplies = 0;
  #reset: { readonly by: "us" | "them"; readonly seq: number } | undefined;
  #resetWanted = false;
  #lastReply = 0;

  constructor(options: ProtocolStateMachineOptions) {
    this.#options = options;
    this.#numbers = new SequenceNumbers(options.side, options.maxSequence ?? MAX_SEQUENCE);
  }

  get state() {
    const pending = this.#inFlight?.request.type;
    if (this.#isWorker) {
      if (this.#exiting) return this.#stage === "exit" ? "CL_EXIT0" : "CL_EXIT1";
      if (this.#stage !== "open") return pending === "HELLO" ? "CL_INIT1" : "CL_INIT0";
      if (pending === "UPDATE") return "CL_UPDATE1";
      return this.#queue.length > 0 ? "CL_UPDATE0" : "CL_LOOP0";
    }
    const answering = this.#answering?.type;
    if (this.#stage === "new") return "SV_INIT0";
    if (this.#stage === "greeting") return answering === "HELLO" ? "SV_INIT2" : "SV_INIT1";
    if (this.#exiting) return "SV_EXIT";
    if (answering === "UPDATE") return "SV_LOOP2";
    return pending === undefined ? "SV_LOOP0" : "SV_LOOP1";
  }

  /** A request would go out at once. */
  get idle(): boolean {
    return this.#stage === "open" && this.#queue.length === 0 && this.#free && this.#reset === undefined;
  }

  get unanswered(): readonly Tag[] {
    return [...this.#sent, ...this.#queue].map(({ tag }) => tag);
  }

  start(): Effect<Tag>[] {
    this.#greet();
    return this.#effects.splice(0);
  }

  receive(message: Message | Unreadable): Effect<Tag>[] {
    if (message.type === "OK" || message.type === "ERROR") this.#onReply(message);
    else if (message.type === "RESET") this.#onReset(message.seq);
    else this.#onRequest(message);
    return this.#advance();
  }

  /**
   * HELLO is sent before waiting requests, STOP(at once) in parallel to an unanswered one. With `skipNumbers` the
   * number is above all that the other side may wait for since an older connection.
   */
  request(request: Request, tag: Tag, skipNumbers = false): Effect<Tag>[] {
    if (skipNumbers) this.#numbers.skipAhead();
    const own = { request, tag, notBefore: 0 };
    const mayHurry = this.#stage === "open" && this.#reset === undefined && !this.#numbers.mustReset;
    if (isStopAtOnce(request) && mayHurry && !this.#sent.some(({ urgent }) => urgent)) this.#sendRequest(own, true);
    else if (request.type === "HELLO") this.#queue.unshift(own);
    else this.#queue.push(own);
    return this.#advance();
  }

  /** The caller's answer to a request. It is dropped if a RESET has dropped the request. */
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

  /** Restarts the sequence numbers as soon as everything is answered. Not where the other end may be an original. */
  reset(): Effect<Tag>[] {
    if (!this.#options.original && this.#stage === "open") this.#resetWanted = true;
    return this.#advance();
  }

  /** Sends requests again that were refused with ERROR(overflow). */
  retry(): Effect<Tag>[] {
    this.#queue = this.#queue.map((queued) => ({ ...queued, notBefore: 0 }));
    return this.#advance();
  }

  /** No more requests are sent. Requests of the other end are still answered. */
  exit(atOnce = false): void {
    this.#stage = atOnce ? "exit at once" : "exit";
    this.#queue = [];
  }

  get #isWorker(): boolean {
    return this.#options.side === "worker";
  }

  get #exiting(): boolean {
    return this.#stage.startsWith("exit");
  }

  get #inFlight(): SentRequest<Tag> | undefined {
    return this.#sent.find(({ urgent }) => !urgent);
  }

  /** Nothing is unanswered on either side. */
  get #free(): boolean {
    const theirs = this.#answering ?? this.#stopAtOnce;
    return this.#sent.length === 0 && theirs === undefined && this.#incoming.length === 0;
  }

  #greet(): void {
    this.#stage = "greeting";
    this.#begun = false;
    if (this.#options.greeting === "worker") this.#begin();
    // Has the number 0, which is outside the sequence.
    else if (!this.#isWorker) this.#send({ type: "OK", nproc: 0, nrun: 0, seq: 0 });
  }

  #begin(): void {
    if (!this.#isWorker || this.#begun) return;
    this.#begun = true;
    this.#effects.push({ kind: "begin" });
  }

  #onReply(reply: Numbered<Reply>): void {
    const { seq } = reply;
    const sent = this.#sent.find((one) => one.seq === seq);
    if (sent !== undefined) {
      this.#sent = this.#sent.filter((one) => one !== sent);
      this.#settle(sent, reply);
    } else if (this.#reset?.by === "us" && seq === this.#reset.seq) {
      this.#reset = undefined;
      this.#violation("RESET was answered, but not by RESET");
    } else if (reply.type !== "OK" || !this.#isGreeting(reply)) {
      this.#numbers.replyReceived(seq);
      this.#violation(`a reply to ${seq}, which was not asked`);
    }
  }

  #settle({ request, tag, notBefore }: SentRequest<Tag>, reply: Numbered<Reply>): void {
    this.#numbers.replyReceived(reply.seq);
    if (reply.type === "ERROR" && reply.code === ERRORS.overflow && !this.#exiting) {
      this.#queue.unshift({ request, tag, notBefore });
      this.#effects.push({ kind: "overflow" });
      return;
    }
    if (reply.type === "OK") this.#goodReplies++;
    const greets = request.type === "HELLO" || wantsCounts(request);
    if (greets && reply.type === "OK" && this.#stage === "greeting") this.#stage = "open";
    this.#effects.push({ kind: "reply", request, tag, reply });
  }

  /** OK(0) to a worker, OK(nproc) to a foreman: neither is a reply. */
  #isGreeting(ok: Numbered<Ok>): boolean {
    if (this.#stage !== "greeting" || this.#options.greeting !== "foreman") return false;
    if (this.#isWorker) this.#begin();
    else if (this.#answering !== undefined || this.#incoming.length > 0) return false;
    else {
      // A plain number has an empty upper half.
      const numProcs = ok.nproc === 0 ? ok.nrun : ok.nproc;
      this.#deliver({ type: "HELLO", hello: { numProcs, running: null }, seq: ok.seq });
    }
    return true;
  }

  #onRequest(message: Exclude<Message, Reply> | Unreadable): void {
    const { queueLimit = QUEUE_LIMIT } = this.#options;
    const { seq } = message;
    if (!this.#accepts(seq)) return;
    if (this.#numbers.otherSideUsedUp) this.#resetWanted = true;
    const isFromWorker = message.type === "HELLO" || message.type === "UPDATE";
    const isUnknown = message.type === "?" || message.type === "LIST" || message.type === "RESET";
    if (isUnknown || isFromWorker === this.#isWorker) {
      this.#refuse(seq, "bad_message", message.type === "?" ? message.why : `${message.type} is not for this side`);
    } else if (isStopAtOnce(message)) {
      this.#stopAtOnce = message;
      this.#effects.push({ kind: "request", request: message });
    } else if (this.#incoming.length >= queueLimit && !(this.#incoming.length === 0 && this.#mayDeliver(seq))) {
      this.#refuse(seq, "overflow", `more than ${queueLimit} requests at a time`);
    } else {
      this.#incoming.push(message);
    }
  }

  /** Whether a request may have this number. If not, it is answered or dropped here. */
  #accepts(seq: number): boolean {
    const wrong = this.#numbers.rejectionOf(seq);
    if (wrong !== undefined) {
      this.#refuse(seq, "bad_seq", wrong);
      return false;
    }
    // By c) of section 5 it is dropped without a reply, and sent again later.
    if (this.#reset !== undefined && seq >= this.#reset.seq) return false;
    this.#numbers.requestReceived(seq);
    return true;
  }

  #onReset(seq: number): void {
    if (this.#reset?.by === "us" && seq === this.#reset.seq) this.#restart();
    else if (this.#accepts(seq)) {
      this.#reset = { by: "them", seq };
      this.#requeueAbove(seq);
    }
  }

  /** RESET is answered with RESET, when no lower request is unanswered. Then both sides start again. */
  #answerReset(seq: number): void {
    this.#send({ type: "RESET", lastReply: this.#lastReply, seq });
    this.#restart();
  }

  /** Queues unanswered requests above this number again. A HELLO is not repeated: the caller makes a new one. */
  #requeueAbove(above: number): void {
    const dropped = this.#sent.filter(({ seq, request }) => seq > above && request.type !== "HELLO");
    this.#sent = this.#sent.filter(({ seq }) => seq <= above);
    this.#queue.unshift(...dropped.map(({ request, tag }) => ({ request, tag, notBefore: 0 })));
  }

  #advance(): Effect<Tag>[] {
    const [first] = this.#incoming;
    if (first !== undefined && this.#mayDeliver(first.seq)) {
      this.#incoming.shift();
      this.#deliver(first);
    }
    if (this.#free) {
      if (this.#reset?.by === "them") this.#answerReset(this.#reset.seq);
      else if (this.#reset === undefined) this.#sendNextRequest();
    }
    return this.#effects.splice(0);
  }

  /** Whether the first waiting request may be delivered to the caller, if it has this number. */
  #mayDeliver(seq: number): boolean {
    const inFlight = this.#inFlight;
    const greets = !this.#isWorker && this.#stage === "greeting";
    return this.#answering === undefined && (inFlight === undefined || seq < inFlight.seq || greets);
  }

  #deliver(request: Numbered<Request>): void {
    this.#answering = request;
    this.#effects.push({ kind: "request", request });
  }

  #sendNextRequest(): void {
    const [first] = this.#queue;
    const mayGreet =
      first !== undefined &&
      (this.#isWorker ? this.#begun && first.request.type === "HELLO" : wantsCounts(first.request));
    if (this.#stage !== "open" && !(this.#stage === "greeting" && mayGreet)) return;
    if (this.#resetWanted || (first !== undefined && this.#numbers.mustReset)) {
      const seq = this.#sendNumbered({ type: "RESET", lastReply: this.#lastReply });
      if (seq === undefined) return;
      this.#resetWanted = false;
      this.#reset = { by: "us", seq };
    } else if (first !== undefined && first.notBefore <= this.#goodReplies && this.#sendRequest(first))
      this.#queue.shift();
  }

  #sendRequest({ request, tag }: OwnRequest<Tag>, urgent = false): boolean {
    const seq = this.#sendNumbered(request);
    if (seq !== undefined) this.#sent.push({ request, tag, seq, urgent, notBefore: this.#goodReplies + 1 });
    return seq !== undefined;
  }

  #sendNumbered(body: Body): number | undefined {
    const seq = this.#numbers.take();
    if (seq === undefined) this.#effects.push({ kind: "broken", why: "the sequence numbers are used up" });
    else this.#send({ ...body, seq });
    return seq;
  }

  #restart(): void {
    this.#numbers.restart();
    this.#requeueAbove(-1);
    this.#queue = this.#queue.filter(({ request }) => request.type !== "HELLO");
    this.#answering = undefined;
    this.#stopAtOnce = undefined;
    this.#incoming = [];
    this.#reset = undefined;
    this.#resetWanted = false;
    this.#lastReply = 0;
    this.#effects.push({ kind: "restarted" });
    if (!this.#exiting) this.#greet();
  }

  #reply(seq: number, reply: Reply): void {
    this.#lastReply = seq;
    if (reply.type === "OK") this.#goodReplies++;
    this.#send({ ...reply, seq });
  }

  #send(message: Message): void {
    this.#effects.push({ kind: "send", message });
  }

  #refuse(seq: number, code: keyof typeof ERRORS, why: string): void {
    this.#violation(why);
    this.#send({ ...refusal(code), seq });
  }

  #violation(why: string): void {
    this.#effects.push({ kind: "violation", why });
  }
}
