/**
 * The requests of one end: those that wait for their turn, the one that waits for its reply, and a STOP(at once) beside it. What was
 * refused with ERROR(overflow) goes out again after one good reply, given or received; what a RESET has dropped goes out again first of
 * all.
 */
import type { Request } from "./messages.js";

interface QueuedRequest<Tag> {
  readonly request: Request;
  readonly tag: Tag;
  /** After ERROR(overflow): it is not sent again before so many good replies. */
  readonly notBefore: number;
}

export interface SentRequest<Tag> extends QueuedRequest<Tag> {
  readonly seq: number;
  /** Good replies when it was sent. */
  readonly since: number;
}

export class OutgoingRequests<Tag> {
  #queue: QueuedRequest<Tag>[] = [];
  #inFlight: SentRequest<Tag> | undefined;
  #urgent: SentRequest<Tag> | undefined;
  #goodReplies = 0;

  /** The one that waits for its reply. */
  get inFlight(): SentRequest<Tag> | undefined {
    return this.#inFlight;
  }

  get queuedCount(): number {
    return this.#queue.length;
  }

  /** Nothing waits for a reply. */
  get noneInFlight(): boolean {
    return this.#inFlight === undefined && this.#urgent === undefined;
  }

  get maySendUrgent(): boolean {
    return this.#urgent === undefined;
  }

  /** The next one waits for a good reply. */
  get overflowed(): boolean {
    return (this.#queue[0]?.notBefore ?? 0) > this.#goodReplies;
  }

  get first(): Request | undefined {
    return this.#queue[0]?.request;
  }

  /** Those without a reply, sent or not. */
  get unanswered(): readonly Tag[] {
    const sent = [this.#inFlight, this.#urgent].filter((one) => one !== undefined);
    return [...sent, ...this.#queue].map(({ tag }) => tag);
  }

  /** HELLO goes before anything that waits. */
  add(request: Request, tag: Tag): void {
    const queued = { request, tag, notBefore: 0 };
    if (request.type === "HELLO") this.#queue.unshift(queued);
    else this.#queue.push(queued);
  }

  /** The first one has gone out with this number. */
  sent(seq: number): void {
    const queued = this.#queue.shift();
    if (queued !== undefined) this.#inFlight = { ...queued, seq, since: this.#goodReplies };
  }

  /** This one has gone out beside any other. */
  sentUrgent(request: Request, tag: Tag, seq: number): void {
    this.#urgent = { request, tag, notBefore: 0, seq, since: this.#goodReplies };
  }

  /** The one of this number, which has its reply. */
  answered(seq: number): SentRequest<Tag> | undefined {
    const sent = [this.#inFlight, this.#urgent].find((one) => one?.seq === seq);
    if (sent === this.#inFlight) this.#inFlight = undefined;
    else if (sent !== undefined) this.#urgent = undefined;
    return sent;
  }

  /** It was refused with ERROR(overflow). */
  overflow({ request, tag, since }: SentRequest<Tag>): void {
    this.#queue.unshift({ request, tag, notBefore: since + 1 });
  }

  /** A reply that is no ERROR was given or received. */
  countGoodReply(): void {
    this.#goodReplies++;
  }

  retry(): void {
    this.#queue = this.#queue.map((queued) => ({ ...queued, notBefore: 0 }));
  }

  /** Those above this number will have no reply. */
  requeueAbove(above: number): void {
    if (this.#urgent !== undefined && this.#urgent.seq > above) this.#urgent = this.#requeue(this.#urgent);
    if (this.#inFlight !== undefined && this.#inFlight.seq > above) this.#inFlight = this.#requeue(this.#inFlight);
  }

  /** Not a HELLO: a new one is made. */
  #requeue({ request, tag }: SentRequest<Tag>): undefined {
    if (request.type !== "HELLO") this.#queue.unshift({ request, tag, notBefore: 0 });
  }

  restart(): void {
    this.requeueAbove(-1);
    this.#queue = this.#queue.filter(({ request }) => request.type !== "HELLO");
  }

  /** Nothing more is sent. */
  clearQueue(): void {
    this.#queue = [];
  }
}
