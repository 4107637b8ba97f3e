/** The messages that a worker has not answered, and the attachments of requests and replies. */
import { now } from "../../../base/clock.js";
import type { WorkerCall } from "../../../broker/sessions/call-worker.js";
import type { Message } from "../frames.js";
import type { StreamReader } from "../stream.js";

/** Attached to a request: what the client sent. */
export class ClientCall {
  constructor(
    readonly client: Buffer,
    readonly message: Message,
  ) {}
}

/** Attached to an answer: the frames for the client, as the worker sent them. */
export class ForwardedReply {
  constructor(readonly frames: readonly Uint8Array[]) {}
}

/** Attached if there is no answer: the worker has freed the slot without one. */
export const SLOT_FREED = Symbol("the slot is free");

export interface OutstandingMessage {
  readonly call: WorkerCall;
  /** Identifies the RESPONSE. */
  readonly key: string;
  /** Whether the worker sends an INCREMENT for it. */
  readonly expectsIncrement: boolean;
  /** A RESPONSE is expected. */
  readonly tracked: boolean;
  /** How the RESPONSE is delivered: unchanged to a client of this protocol, as a body or complete stream to others. */
  readonly reply: "forward" | "body" | StreamReader;
}

/** Not a byte, so it can separate texts with one character per byte. */
const SEPARATOR = "\u0100";

/** The path to the client and the id: a RESPONSE repeats both. */
export const replyKey = (path: readonly Buffer[], id: Buffer): string =>
  [...path, id].map((frame) => frame.toString("latin1")).join(SEPARATOR);

export class OutstandingMessages {
  readonly #byName = new Map<string, OutstandingMessage>();
  /** More than one if a client uses an id twice. */
  readonly #byKey = new Map<string, OutstandingMessage[]>();
  /** Names of messages from before the last REGISTER. They do not use the slots that it registered. */
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
    this.#byName.set(one.call.name, one);
    const same = this.#byKey.get(one.key);
    if (same === undefined) this.#byKey.set(one.key, [one]);
    else same.push(one);
  }

  byName(name: string): OutstandingMessage | undefined {
    return this.#byName.get(name);
  }

  byKey(key: string): OutstandingMessage | undefined {
    return this.#byKey.get(key)?.[0];
  }

  /** The message that an unexpected INCREMENT ends: the oldest without a RESPONSE, else the oldest. */
  get likelyDone(): OutstandingMessage | undefined {
    for (const one of this.#byName.values()) if (!one.tracked) return one;
    const [oldest] = this.#byName.values();
    return oldest;
  }

  /** The call continues under another key. */
  replace(one: OutstandingMessage, next: OutstandingMessage): void {
    this.#removeKey(one);
    this.add(next);
  }

  /** Returns true if it was carried over. */
  remove(one: OutstandingMessage): boolean {
    this.#byName.delete(one.call.name);
    this.#removeKey(one);
    return this.#carriedOver.delete(one.call.name);
  }

  clear(): void {
    this.#byName.clear();
    this.#byKey.clear();
    this.#carriedOver.clear();
  }

  #removeKey(one: OutstandingMessage): void {
    const others = this.#byKey.get(one.key) ?? [];
    if (others.length > 1) others.splice(others.indexOf(one), 1);
    else this.#byKey.delete(one.key);
  }
}

/**
 * INCREMENTs that are still expected for messages whose slot is already free, because they were answered or given up.
 * Each is expected for a limited time: not every worker sends them.
 */
export class ExpectedIncrements {
  #deadlines: number[] = [];

  /** `most`: at most one for each slot of the worker is expected. */
  add(ms: number, most: number): void {
    this.#deadlines.push(now() + ms);
    if (this.#deadlines.length > Math.max(1, most)) this.#deadlines.shift();
  }

  /** Returns true if the received INCREMENT was expected. */
  take(): boolean {
    const time = now();
    this.#deadlines = this.#deadlines.filter((until) => until > time);
    return this.#deadlines.shift() !== undefined;
  }
}
