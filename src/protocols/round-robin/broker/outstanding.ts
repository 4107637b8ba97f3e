/** The messages that a worker has, by the request or task that each is, and by what its RESPONSE will say. */
import type { ErrorCode } from "../../../base/errors.js";
import type { StreamReader } from "../stream.js";

export interface Outstanding {
  /** Of the request or task: unique at this worker. */
  readonly name: string;
  readonly key: string;
  /** Whether an INCREMENT of its own will follow. */
  readonly increments: boolean;
  /** A RESPONSE is expected. */
  readonly tracked: boolean;
  /** Asked by somebody of another protocol. */
  readonly own?: { readonly stream?: StreamReader };
  /** The worker is done with it: this is its answer. */
  readonly done: (body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown) => void;
}

/** Separates what is one byte a character. */
const MARK = "\u0100";

/** The way to the asker and the id: together they are in the RESPONSE, and in no other message's at the same time. */
export const replyKey = (way: readonly Buffer[], id: Buffer): string =>
  `${way.map((address) => address.toString("latin1")).join(MARK)}${MARK}${id.toString("latin1")}`;

export class OutstandingMessages {
  readonly #byName = new Map<string, Outstanding>();
  /** More than one where an asker uses an id twice. */
  readonly #byReply = new Map<string, Outstanding[]>();
  /** Those that were there when REGISTER came again: they take no slot of those that were registered then. */
  #carried = new Set<string>();

  get size(): number {
    return this.#byName.size;
  }

  get carried(): number {
    return this.#carried.size;
  }

  carryAll(): void {
    this.#carried = new Set(this.#byName.keys());
  }

  enter(one: Outstanding): void {
    this.#byName.set(one.name, one);
    const same = this.#byReply.get(one.key);
    if (same === undefined) this.#byReply.set(one.key, [one]);
    else same.push(one);
  }

  named(name: string): Outstanding | undefined {
    return this.#byName.get(name);
  }

  answeredBy(key: string): Outstanding | undefined {
    return this.#byReply.get(key)?.[0];
  }

  /** Which one ends with an INCREMENT that belongs to none: the oldest that has no other end, else the oldest. */
  get likelyDone(): Outstanding | undefined {
    for (const one of this.#byName.values()) if (!one.tracked) return one;
    const [first] = this.#byName.values();
    return first;
  }

  /** The same goes on, and is answered in another way. */
  replace(one: Outstanding, next: Outstanding): void {
    this.#forgetKey(one);
    this.enter(next);
  }

  /** True where it was a carried one. */
  remove(one: Outstanding): boolean {
    this.#byName.delete(one.name);
    this.#forgetKey(one);
    return this.#carried.delete(one.name);
  }

  clear(): void {
    this.#byName.clear();
    this.#byReply.clear();
    this.#carried.clear();
  }

  #forgetKey(one: Outstanding): void {
    const others = this.#byReply.get(one.key) ?? [];
    if (others.length > 1) others.splice(others.indexOf(one), 1);
    else this.#byReply.delete(one.key);
  }
}
