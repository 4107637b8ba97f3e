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

export interface SentRequest<Tag> extends Pick<QueuedRequest<Tag>, "request" | "tag"> {
  readonly seq: number;
  readonly urgent: boolean;
  /** Good replies when it was sent. */
  readonly since: number;
}

export class OutgoingRequests<Tag> {
  #queue: QueuedRequest<Tag>[] = [];
  /** Without a reply: at most one that is urgent and one that is not. */
  #sent: SentRequest<Tag>[] = [];
  #goodReplies = 0;

  get inFlight(): SentRequest<Tag> | undefined {
    return this.#sent.find(({ urgent }) => !urgent);
  }

  get noneInFlight(): boolean {
    return this.#sent.length === 0;
  }

  get maySendUrgent(): boolean {
    return !this.#sent.some(({ urgent }) => urgent);
  }

  get queuedCount(): number {
    return this.#queue.length;
  }

  get first(): Request | undefined {
    return this.#queue[0]?.request;
  }

  /** The first one waits for a good reply. */
  get overflowed(): boolean {
    return (this.#queue[0]?.notBefore ?? 0) > this.#goodReplies;
  }

  get unanswered(): readonly Tag[] {
    return [...this.#sent, ...this.#queue].map(({ tag }) => tag);
  }

  /** HELLO goes before anything that waits. */
  add(request: Request, tag: Tag): void {
    const queued = { request, tag, notBefore: 0 };
    if (request.type === "HELLO") this.#queue.unshift(queued);
    else this.#queue.push(queued);
  }

  firstSent(seq: number): void {
    const queued = this.#queue.shift();
    if (queued !== undefined) this.sent(queued.request, queued.tag, seq, false);
  }

  sent(request: Request, tag: Tag, seq: number, urgent: boolean): void {
    this.#sent.push({ request, tag, seq, urgent, since: this.#goodReplies });
  }

  /** The one of this number, which has its reply. */
  answered(seq: number): SentRequest<Tag> | undefined {
    const answered = this.#sent.find((one) => one.seq === seq);
    this.#sent = this.#sent.filter((one) => one !== answered);
    return answered;
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

  /** Those above this number will have no reply. Not a HELLO: a new one is made. */
  requeueAbove(above: number): void {
    const dropped = this.#sent.filter(({ seq, request }) => seq > above && request.type !== "HELLO");
    this.#sent = this.#sent.filter(({ seq }) => seq <= above);
    this.#queue.unshift(...dropped.map(({ request, tag }) => ({ request, tag, notBefore: 0 })));
  }

  restart(): void {
    this.requeueAbove(-1);
    this.#queue = this.#queue.filter(({ request }) => request.type !== "HELLO");
  }

  clearQueue(): void {
    this.#queue = [];
  }
}
