/**
 * The requests of one end: those that wait for their turn, the one that waits for its reply, and a STOP(at once) beside it. What was refused
 * with ERROR(overflow) goes out again after one good reply, given or received; what a RESET has dropped goes out again first of all.
 */
import type { Request } from "./messages.js";

interface Asking<Tag> {
  readonly request: Request;
  readonly tag: Tag;
  /** After ERROR(overflow): it is not sent again before so many good replies. */
  readonly notBefore: number;
}

export interface Asked<Tag> extends Asking<Tag> {
  readonly seq: number;
  /** Good replies when it was sent. */
  readonly since: number;
}

export class Outgoing<Tag> {
  #waiting: Asking<Tag>[] = [];
  #asked: Asked<Tag> | undefined;
  #hurried: Asked<Tag> | undefined;
  #good = 0;

  /** The one that waits for its reply. */
  get asked(): Asked<Tag> | undefined {
    return this.#asked;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Nothing waits for a reply. */
  get settled(): boolean {
    return this.#asked === undefined && this.#hurried === undefined;
  }

  get mayHurry(): boolean {
    return this.#hurried === undefined;
  }

  /** The next one waits for a good reply. */
  get overflowed(): boolean {
    return (this.#waiting[0]?.notBefore ?? 0) > this.#good;
  }

  get first(): Request | undefined {
    return this.#waiting[0]?.request;
  }

  /** Those without a reply, sent or not. */
  get unanswered(): readonly Tag[] {
    const sent = [this.#asked, this.#hurried].filter((one) => one !== undefined);
    return [...sent, ...this.#waiting].map(({ tag }) => tag);
  }

  /** HELLO goes before anything that waits. */
  add(request: Request, tag: Tag): void {
    const asking = { request, tag, notBefore: 0 };
    if (request.type === "HELLO") this.#waiting.unshift(asking);
    else this.#waiting.push(asking);
  }

  /** The first one has gone out with this number. */
  sent(seq: number): void {
    const asking = this.#waiting.shift();
    if (asking !== undefined) this.#asked = { ...asking, seq, since: this.#good };
  }

  /** This one has gone out beside any other. */
  hurried(request: Request, tag: Tag, seq: number): void {
    this.#hurried = { request, tag, notBefore: 0, seq, since: this.#good };
  }

  /** The one of this number, which has its reply. */
  answered(seq: number): Asked<Tag> | undefined {
    const asked = [this.#asked, this.#hurried].find((one) => one?.seq === seq);
    if (asked === this.#asked) this.#asked = undefined;
    else if (asked !== undefined) this.#hurried = undefined;
    return asked;
  }

  /** It was refused with ERROR(overflow). */
  overflow({ request, tag, since }: Asked<Tag>): void {
    this.#waiting.unshift({ request, tag, notBefore: since + 1 });
  }

  /** A reply that is no ERROR was given or received. */
  good(): void {
    this.#good++;
  }

  retry(): void {
    this.#waiting = this.#waiting.map((asking) => ({ ...asking, notBefore: 0 }));
  }

  /** Those above this number will have no reply. */
  dropped(above: number): void {
    if (this.#hurried !== undefined && this.#hurried.seq > above) this.#hurried = this.#again(this.#hurried);
    if (this.#asked !== undefined && this.#asked.seq > above) this.#asked = this.#again(this.#asked);
  }

  /** Not a HELLO: that is made anew. */
  #again({ request, tag }: Asked<Tag>): undefined {
    if (request.type !== "HELLO") this.#waiting.unshift({ request, tag, notBefore: 0 });
  }

  restart(): void {
    this.dropped(-1);
    this.#waiting = this.#waiting.filter(({ request }) => request.type !== "HELLO");
  }

  /** Takes back those that were not sent, or are to be sent again; gives their tags. */
  withdraw(which: (request: Request, tag: Tag) => boolean): Tag[] {
    const gone = this.#waiting.filter(({ request, tag }) => which(request, tag));
    this.#waiting = this.#waiting.filter((asking) => !gone.includes(asking));
    return gone.map(({ tag }) => tag);
  }
}
