/** The messages that a worker has, by the request or task that each is, and by what its RESPONSE will say. */
import type { ErrorCode } from "../../../base/errors.js";
import type { StreamReader } from "../stream.js";

export interface OutstandingMessage {
  /** Of the request or task: unique at this worker. */
  readonly name: string;
  readonly key: string;
  /** Whether an INCREMENT of its own will follow. */
  readonly expectsIncrement: boolean;
  /** A RESPONSE is expected. */
  readonly tracked: boolean;
  /** Asked by somebody of another protocol. */
  readonly otherProtocol?: { readonly stream?: StreamReader };
  /** The worker is done with it: this is its answer. */
  readonly done: (body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown) => void;
}

/** Separates what is one byte a character. */
const MARK = "\u0100";

/** The way to the asker and the id: together they are in the RESPONSE, and in no other message's at the same time. */
export const replyKey = (returnPath: readonly Buffer[], id: Buffer): string =>
  `${returnPath.map((address) => address.toString("latin1")).join(MARK)}${MARK}${id.toString("latin1")}`;

export class OutstandingMessages {
  readonly #byName = new Map<string, OutstandingMessage>();
  /** More than one where an asker uses an id twice. */
  readonly #byReply = new Map<string, OutstandingMessage[]>();
  /** Those that were there when REGISTER came again: they take no slot of those that were registered then. */
  #carriedOver = new Set<string>();

  get size(): number {
    return this.#byName.size;
  }

  get carriedOver(): number {
    return this.#carriedOver.size;
  }

  carryOverAll(): void {
    this.#carriedOver = new Set(this.#byName.keys());
  }

  add(one: OutstandingMessage): void {
    this.#byName.set(one.name, one);
    const same = this.#byReply.get(one.key);
    if (same === undefined) this.#byReply.set(one.key, [one]);
    else same.push(one);
  }

  byName(name: string): OutstandingMessage | undefined {
    return this.#byName.get(name);
  }

  byReplyKey(key: string): OutstandingMessage | undefined {
    return this.#byReply.get(key)?.[0];
  }

  /** Which one ends with an INCREMENT that belongs to none: the oldest that has no other end, else the oldest. */
  get likelyDone(): OutstandingMessage | undefined {
    for (const one of this.#byName.values()) if (!one.tracked) return one;
    const [first] = this.#byName.values();
    return first;
  }

  /** The same goes on, and is answered in another way. */
  replace(one: OutstandingMessage, next: OutstandingMessage): void {
    this.#forgetKey(one);
    this.add(next);
  }

  /** True where it was a carried one. */
  remove(one: OutstandingMessage): boolean {
    this.#byName.delete(one.name);
    this.#forgetKey(one);
    return this.#carriedOver.delete(one.name);
  }

  clear(): void {
    this.#byName.clear();
    this.#byReply.clear();
    this.#carriedOver.clear();
  }

  #forgetKey(one: OutstandingMessage): void {
    const others = this.#byReply.get(one.key) ?? [];
    if (others.length > 1) others.splice(others.indexOf(one), 1);
    else this.#byReply.delete(one.key);
  }
}

/**
 * INCREMENTs that are still to come for messages whose slot is free already, because they were answered or given up. Each is waited for
 * only so long: not every worker sends them.
 */
export class ExpectedIncrements {
  readonly #now: () => number;
  #deadlines: number[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  /** `most` is how many can still come from a worker: as many as it has slots. */
  add(ms: number, most: number): void {
    this.#deadlines.push(this.#now() + ms);
    if (this.#deadlines.length > Math.max(1, most)) this.#deadlines.shift();
  }

  /** True where the INCREMENT that came is one of these. */
  take(): boolean {
    const now = this.#now();
    this.#deadlines = this.#deadlines.filter((until) => until > now);
    return this.#deadlines.shift() !== undefined;
  }
}
