/**
 * A client's end of the link. Replies may arrive in any order.
 *
 *   connecting  messages wait for HELLO_ACK
 *   open        messages are sent at once
 *   closed      by close(), by a refusal, or because the broker could not be reached: every message is rejected
 *
 * A message ends with its reply, at its deadline or when its signal is aborted, independent of the link. When an open
 * link is lost, messages without a reply are rejected with LABORO_BROKER_GONE: it is unknown whether the broker
 * received them, so the caller decides whether to repeat them. Repeatable messages are sent again on the next
 * connection instead. The link reconnects by itself.
 */
import { checkTimeout, MAX_TIMER_MS, type WaitOptions, waitFor } from "../base/clock.js";
import { LaboroError } from "../base/errors.js";
import type { JobId } from "../model/ids.js";
import type { JobProgress } from "../model/outcome.js";
import { errorFromValue } from "../model/task-definition.js";
import type { BrokerAddress } from "../protocols/laboro/broker-address.js";
import { type Dial, dial, isAbsent, type LinkOf } from "../protocols/laboro/dial.js";
import {
  type FollowRequest,
  type FromClient,
  LINK_VERSION,
  type TakenOutput,
  type ToClient,
} from "../protocols/laboro/messages.js";
import type { TakeOutput } from "./follow.js";

type Sent<Type extends FromClient["type"]> = Omit<Extract<FromClient, { type: Type }>, "id" | "deadline">;

/** The link adds number and deadline. */
type ClientMessage = Sent<"REQUEST"> | Sent<"OPERATION">;

interface SendOptions {
  /** Rejects with LABORO_DEADLINE after this time; nothing is begun later. A REQUEST has 30 s if absent. */
  readonly timeoutMs?: number | undefined;
  /** Rejects with the signal's reason when it is aborted. */
  readonly signal?: AbortSignal | undefined;
  /** Doing it twice has the effect of doing it once: it is sent again after a lost connection. */
  readonly repeatable?: boolean;
}

interface PendingReply {
  readonly message: ClientMessage;
  readonly timeoutMs: number | undefined;
  /** On the clock of this process; infinite if the message has none. */
  readonly deadline: number;
  /** When to stop waiting: at the deadline, or a moment after it. */
  giveUpAt: number;
  readonly repeatable: boolean;
  readonly signal: AbortSignal | undefined;
  onAbort: (() => void) | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export const DEFAULT_TIMEOUT_MS = 30_000;
/** How many messages are checked for their deadline per millisecond, on average. */
const PENDING_PER_MS = 1_000;
/** The refusal of a connected broker says why there was no answer: it has this long to arrive after the deadline. */
const REFUSAL_SLACK_MS = 100;

/** A job that is followed. */
interface LinkFollow {
  readonly job: JobId;
  /** What to ask the broker for, on each connection. */
  readonly request: () => Omit<FollowRequest, "job">;
  readonly relay: TakeOutput | undefined;
  /** Ask again on the next connection; otherwise a lost one is an error. */
  readonly reconnect: boolean;
  readonly onProgress: (progress: JobProgress) => void;
  /** Nothing follows. */
  readonly onError: (error: LaboroError) => void;
}

interface ClientLinkOptions {
  readonly urls: readonly BrokerAddress[];
  readonly token: string;
  /** The CA of `https:` brokers, by its fingerprint. */
  readonly caFingerprint?: string | undefined;
  readonly name: string;
  /** Use only these URLs, even if their broker knows others. */
  readonly pinned?: boolean;
  /** Give up when no broker answers within this time; the link is tried for ever if absent. */
  readonly connectTimeoutMs?: number;
  /** Give up at once if nothing listens at any of the URLs. */
  readonly failFast?: boolean;
  /** False: a lost connection closes the link. */
  readonly reconnect?: boolean;
}

export class ClientLink {
  readonly #options: ClientLinkOptions;
  readonly #dial: Dial;
  readonly #pendingReplies = new Map<number, PendingReply>();
  readonly #follows = new Map<number, LinkFollow>();
  /** By attempt: how much of its relayed output was taken, to be reported in the next turn. */
  readonly #taken = new Map<string, { readonly link: LinkOf<"client">; readonly output: TakenOutput }>();
  #link: LinkOf<"client"> | undefined;
  #closed: LaboroError | undefined;
  #lastId = 0;
  /** When HELLO was sent: what deadlines are counted from. */
  #openedAt = 0;
  /** The brokers of the group, as last received. They stay candidates: one that left may come back. */
  #groupUrls: readonly string[] = [];
  #readyWaiters: (() => void)[] = [];
  #deadline: NodeJS.Timeout | undefined;
  #lastError: LaboroError | undefined;
  #giveUpTimer: NodeJS.Timeout | undefined;
  #nextGiveUpAt = Number.POSITIVE_INFINITY;

  constructor(options: ClientLinkOptions) {
    this.#options = options;
    this.#dial = dial<"client">({
      from: "client",
      urls: options.urls,
      token: options.token,
      ...(options.caFingerprint === undefined ? {} : { caFingerprint: options.caFingerprint }),
      onOpen: (link) => {
        this.#openedAt = monotonicMs();
        link.send({ type: "HELLO", version: LINK_VERSION, name: options.name });
      },
      onMessages: (batch, link) => {
        for (const message of batch) this.#receive(message, link);
      },
      onDisconnected: (reason) => {
        const error = new LaboroError("LABORO_BROKER_GONE", `the broker is gone: ${reason.text}`);
        this.#link = undefined;
        this.#lastError = error;
        if (options.reconnect === false) return this.close(error);
        for (const [id, pending] of [...this.#pendingReplies])
          if (!pending.repeatable) this.#settled(id, pending).reject(error);
        this.#endFollows(error, ({ reconnect }) => !reconnect);
      },
      onRefused: (error) => this.close(error),
      onUnreachable: (error) => {
        this.#lastError = error;
        // A broker that was there once may come back.
        const failFast = options.failFast === true && this.#openedAt === 0;
        // Another server has this address: retrying does not help.
        if (error.code === "LABORO_BAD_CERTIFICATE" || (failFast && isAbsent(error))) this.close(error);
      },
    });
    const { connectTimeoutMs } = options;
    if (connectTimeoutMs === undefined) return;
    this.#deadline = setTimeout(() => {
      const why = this.#lastError?.message ?? `no broker answered within ${connectTimeoutMs} ms`;
      this.close(new LaboroError("LABORO_BROKER_UNREACHABLE", why));
    }, connectTimeoutMs);
  }

  get open(): boolean {
    return this.#link !== undefined;
  }

  get closed(): boolean {
    return this.#closed !== undefined;
  }

  /** Resolves at HELLO_ACK; rejects if the broker refuses the client or cannot be reached in time. */
  ready(options: WaitOptions = {}): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#link !== undefined) return Promise.resolve();
    const open = new Promise<void>((resolve, reject) => {
      this.#readyWaiters.push(() => (this.#closed === undefined ? resolve() : reject(this.#closed)));
    });
    return waitFor(open, options, () => `not connected within ${options.timeoutMs} ms${this.whyNoAnswer()}`);
  }

  /** Sends a message with a new id and waits for its reply. */
  async sendAndWait(message: ClientMessage, options: SendOptions = {}): Promise<unknown> {
    const { signal, repeatable = false } = options;
    const timeoutMs = options.timeoutMs ?? (message.type === "REQUEST" ? DEFAULT_TIMEOUT_MS : undefined);
    if (this.#closed !== undefined) throw this.#closed;
    signal?.throwIfAborted();
    checkTimeout(timeoutMs);
    const id = ++this.#lastId;
    const reply = new Promise((resolve, reject) => {
      const deadline = timeoutMs === undefined ? Number.POSITIVE_INFINITY : monotonicMs() + timeoutMs;
      const pending: PendingReply = {
        ...{
          message,
          timeoutMs,
          deadline,
          giveUpAt: deadline,
          repeatable,
          signal,
          onAbort: undefined,
          resolve,
          reject,
        },
      };
      this.#pendingReplies.set(id, pending);
      if (deadline < this.#nextGiveUpAt) this.#giveUpLater(deadline);
      if (signal !== undefined) {
        pending.onAbort = () => this.#cancel(id, signal.reason);
        signal.addEventListener("abort", pending.onAbort);
      }
      if (this.#link !== undefined) this.#send(id, pending, this.#link);
    });
    try {
      return await reply;
    } catch (cause) {
      throw signal?.aborted === true ? cause : withCallers(cause);
    }
  }

  /** Removes the message from those that wait. The caller settles it. */
  #settled(id: number, pending: PendingReply): PendingReply {
    this.#pendingReplies.delete(id);
    if (pending.onAbort !== undefined) pending.signal?.removeEventListener("abort", pending.onAbort);
    return pending;
  }

  #cancel(id: number, error: unknown): void {
    const pending = this.#pendingReplies.get(id);
    if (pending === undefined) return;
    this.#link?.send({ type: "CANCEL_REQUEST", id });
    this.#settled(id, pending).reject(error);
  }

  /** One timer for all deadlines. A message that is answered in time, as nearly all are, costs it nothing. */
  #giveUpLater(at: number): void {
    this.#nextGiveUpAt = at;
    clearTimeout(this.#giveUpTimer);
    if (at === Number.POSITIVE_INFINITY) return;
    const inMs = Math.min(Math.max(1, Math.ceil(at - monotonicMs())), MAX_TIMER_MS);
    this.#giveUpTimer = setTimeout(() => this.#giveUp(), inMs);
  }

  #giveUp(): void {
    const time = monotonicMs();
    let next = Number.POSITIVE_INFINITY;
    for (const [id, pending] of this.#pendingReplies) {
      if (pending.giveUpAt <= time) {
        const waits = this.#link !== undefined && pending.giveUpAt === pending.deadline;
        if (waits) pending.giveUpAt = time + REFUSAL_SLACK_MS;
        else this.#cancel(id, this.#noAnswer(pending.message, pending.timeoutMs));
      }
      if (pending.giveUpAt > time) next = Math.min(next, pending.giveUpAt);
    }
    // If many messages wait, they are checked less often.
    this.#giveUpLater(Math.max(next, time + this.#pendingReplies.size / PENDING_PER_MS));
  }

  #send(id: number, pending: PendingReply, link: LinkOf<"client">): void {
    const { message, deadline } = pending;
    // The timer rejects it in a moment.
    if (deadline <= monotonicMs()) return;
    const sinceOpen = deadline - this.#openedAt;
    try {
      if (message.type === "REQUEST") {
        const { service, body, pool, retry } = message;
        link.send({ type: "REQUEST", id, service, body, pool, retry, deadline: sinceOpen });
      } else link.send({ ...message, id, ...(sinceOpen < Number.POSITIVE_INFINITY ? { deadline: sinceOpen } : {}) });
    } catch (cause) {
      this.#settled(id, pending).reject(cause);
    }
  }

  #noAnswer(message: ClientMessage, timeoutMs: number | undefined): LaboroError {
    const what = message.type === "REQUEST" ? `service ${message.service}` : message.operation;
    return new LaboroError("LABORO_DEADLINE", `${what}: no answer within ${timeoutMs} ms${this.whyNoAnswer()}`);
  }

  follow(follow: LinkFollow): { credit(tasks: number): void; end(): void } {
    const id = ++this.#lastId;
    if (this.#closed !== undefined) follow.onError(this.#closed);
    else {
      this.#follows.set(id, follow);
      this.#link?.send({ type: "FOLLOW", id, job: follow.job, ...follow.request() });
    }
    return {
      credit: (tasks) => this.#link?.send({ type: "FOLLOW_CREDIT", id, tasks }),
      end: () => {
        if (this.#follows.delete(id)) this.#link?.send({ type: "CANCEL_REQUEST", id });
      },
    };
  }

  /** For messages: why no broker answers, if one is missing. */
  whyNoAnswer(): string {
    return this.#link === undefined && this.#lastError !== undefined ? `: ${this.#lastError.message}` : "";
  }

  #endFollows(error: LaboroError, which: (follow: LinkFollow) => boolean): void {
    for (const [id, follow] of [...this.#follows]) {
      if (!which(follow)) continue;
      this.#follows.delete(id);
      follow.onError(error);
    }
  }

  close(why = new LaboroError("LABORO_BROKER_GONE", "this client was closed")): void {
    if (this.#closed !== undefined) return;
    this.#closed = why;
    clearTimeout(this.#deadline);
    this.#giveUpLater(Number.POSITIVE_INFINITY);
    this.#dial.stop(1000, "");
    for (const [id, pending] of [...this.#pendingReplies]) this.#settled(id, pending).reject(why);
    this.#endFollows(why, () => true);
    for (const wake of this.#readyWaiters.splice(0)) wake();
  }

  #receive(message: ToClient, link: LinkOf<"client">): void {
    if (message.type === "HEARTBEAT") return;
    if (message.type === "BROKERS") {
      if (this.#options.pinned !== true) this.#dial.setUrls(message.urls, [...this.#options.urls, ...this.#groupUrls]);
      this.#groupUrls = message.urls;
      return;
    }
    if (message.type === "RELAY") {
      this.#take(message, link);
      return;
    }
    if (message.type === "HELLO_ACK") {
      this.#link = link;
      clearTimeout(this.#deadline);
      link.startHeartbeat(message.heartbeatMs);
      for (const [id, pending] of [...this.#pendingReplies]) this.#send(id, pending, link);
      for (const [id, { job, request }] of this.#follows) link.send({ type: "FOLLOW", id, job, ...request() });
      for (const wake of this.#readyWaiters.splice(0)) wake();
      return;
    }
    if (message.type === "PROGRESS") {
      const follow = this.#follows.get(message.id);
      if (message.ended !== undefined) this.#follows.delete(message.id);
      follow?.onProgress(message);
      return;
    }
    const pending = this.#pendingReplies.get(message.id);
    if (pending === undefined) {
      const follow = this.#follows.get(message.id);
      this.#follows.delete(message.id);
      if (message.type === "ERROR") follow?.onError(new LaboroError(message.code, message.message));
      return;
    }
    this.#settled(message.id, pending);
    if (message.type === "RESULT") pending.resolve(message.value);
    else if (message.type === "ERROR") pending.reject(new LaboroError(message.code, message.message));
    else if (message.error === undefined) pending.resolve(message.body);
    else {
      const text = Buffer.from(message.body).toString() || message.error;
      const cause = errorFromValue(message.details);
      pending.reject(new LaboroError(message.error, text, cause && { cause }));
    }
  }

  #take(message: ToClient & { type: "RELAY" }, link: LinkOf<"client">): void {
    const { job, index, attempt, offset, bytes } = message;
    let take: TakeOutput | undefined;
    for (const follow of this.#follows.values()) if (follow.job === job) take ??= follow.relay;
    const taken = take?.(message) ?? Promise.resolve();
    const report = (): void => {
      if (this.#taken.size === 0) setImmediate(() => this.#reportTaken());
      const key = `${job}.${index}.${attempt}`;
      this.#taken.set(key, { link, output: { job, index, attempt, end: offset + bytes.length } });
    };
    taken.then(report, report);
  }

  #reportTaken(): void {
    for (const { link, output } of this.#taken.values()) link.send({ type: "TAKEN", ...output });
    this.#taken.clear();
  }
}

/**
 * The error with the stack of this moment, which names the functions that wait for it. Where it was made, only the link
 * is on the stack.
 */
export function withCallers(cause: unknown): unknown {
  if (!(cause instanceof LaboroError)) return cause;
  return new LaboroError(cause.code, cause.message, cause.cause === undefined ? undefined : { cause: cause.cause });
}

/** For deadlines. `performance` would load a module of its own, which takes a part of the start of a verb. */
function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}
