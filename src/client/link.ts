/**
 * A client's end of the link. Replies may arrive in any order.
 *
 *   connecting  messages wait for HELLO_ACK
 *   open        messages are sent at once
 *   closed      by close(), by a refusal, or because the broker could not be reached: every message is rejected
 *
 * A message ends with its reply, at its deadline or when its signal is aborted, whatever the link does. When an open link is lost, messages
 * without a reply are rejected with LABORO_BROKER_GONE: whether the broker received them is not known, so the caller decides whether
 * to repeat them. Those that may be repeated are sent again on the next connection instead. The link reconnects by itself.
 */
import { now } from "../base/clock.js";
import { badInput, LaboroError } from "../base/errors.js";
import type { JobId } from "../model/ids.js";
import type { JobProgress } from "../model/progress.js";
import type { BrokerAddress } from "../protocols/laboro/broker-address.js";
import { type Dial, dial, type LinkOf } from "../protocols/laboro/dial.js";
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
export type ClientMessage = Sent<"REQUEST"> | Sent<"OPERATION">;

export interface SendOptions {
  /** Rejects with LABORO_DEADLINE after this time, and the broker begins nothing later. A REQUEST has 30 s if absent. */
  readonly timeoutMs?: number | undefined;
  /** Rejects with the signal's reason when it is aborted. */
  readonly signal?: AbortSignal | undefined;
  /** To do it twice is the same as once: it is sent again after a lost connection. */
  readonly repeatable?: boolean;
}

interface PendingReply {
  readonly message: ClientMessage;
  /** On the clock of this process. */
  readonly deadline: number | undefined;
  readonly repeatable: boolean;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export const DEFAULT_TIMEOUT_MS = 30_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
/** The refusal of a connected broker says why there was no answer: it has this long to arrive after the deadline. */
const REFUSAL_SLACK_MS = 100;

/** A job that is followed. */
export interface LinkFollow {
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

export interface ClientLinkOptions {
  readonly urls: readonly BrokerAddress[];
  readonly token: string;
  /** The CA of `https:` brokers, where they are known by its fingerprint. */
  readonly caFingerprint?: string | undefined;
  readonly name: string;
  /** Go to none but these, even where their broker knows others. */
  readonly pinned?: boolean;
  /** Give up when no broker answers within this time; the link is tried for ever if absent. */
  readonly connectTimeoutMs?: number;
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
  /** The brokers of the group, as last received. They stay candidates: one that left the group may come back. */
  #groupUrls: readonly string[] = [];
  #readyWaiters: (() => void)[] = [];
  #deadline: NodeJS.Timeout | undefined;
  #lastError: LaboroError | undefined;

  constructor(options: ClientLinkOptions) {
    this.#options = options;
    this.#dial = dial<"client">({
      from: "client",
      urls: options.urls,
      token: options.token,
      ...(options.caFingerprint === undefined ? {} : { caFingerprint: options.caFingerprint }),
      onOpen: (link) => {
        this.#openedAt = now();
        link.send({ type: "HELLO", version: LINK_VERSION, name: options.name });
      },
      onMessages: (batch, link) => {
        for (const message of batch) this.#receive(message, link);
      },
      onDisconnected: (reason) => {
        const error = new LaboroError("LABORO_BROKER_GONE", `the broker is gone: ${reason.text}`);
        this.#link = undefined;
        this.#lastError = error;
        for (const pending of [...this.#pendingReplies.values()]) if (!pending.repeatable) pending.reject(error);
        this.#endFollows(error, ({ reconnect }) => !reconnect);
      },
      onRefused: (error) => this.close(error),
      onUnreachable: (error) => {
        this.#lastError = error;
        // Another server has this address: retrying does not help.
        if (error.code === "LABORO_BAD_CERTIFICATE") this.close(error);
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
  ready(): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#link !== undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#readyWaiters.push(() => (this.#closed === undefined ? resolve() : reject(this.#closed)));
    });
  }

  /** Sends a message with a new id and waits for its reply. */
  sendAndWait(message: ClientMessage, options: SendOptions = {}): Promise<unknown> {
    const { signal, repeatable = false } = options;
    const timeoutMs = options.timeoutMs ?? (message.type === "REQUEST" ? DEFAULT_TIMEOUT_MS : undefined);
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs < Number.POSITIVE_INFINITY))
      return Promise.reject(badInput(`timeoutMs: expected a finite number above 0, got ${timeoutMs}`));
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const cancel = (error: unknown): void => {
        this.#link?.send({ type: "CANCEL_REQUEST", id });
        pending.reject(error);
      };
      const onAbort = (): void => cancel(signal?.reason);
      const giveUp = (): void => cancel(this.#noAnswer(message, timeoutMs));
      const onTimeout = (): void => {
        if (this.#link === undefined) giveUp();
        else timer = setTimeout(giveUp, REFUSAL_SLACK_MS);
      };
      let timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, Math.min(timeoutMs, MAX_TIMER_MS));
      const settle = (): void => {
        this.#pendingReplies.delete(id);
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      };
      const pending: PendingReply = {
        ...{ message, repeatable, deadline: timeoutMs === undefined ? undefined : now() + timeoutMs },
        resolve: (value) => {
          settle();
          resolve(value);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      signal?.addEventListener("abort", onAbort);
      this.#pendingReplies.set(id, pending);
      if (this.#link !== undefined) this.#send(id, pending, this.#link);
    });
  }

  #send(
    id: number,
    { message, deadline = Number.POSITIVE_INFINITY, reject }: PendingReply,
    link: LinkOf<"client">,
  ): void {
    // Its timer rejects it in a moment.
    if (deadline <= now()) return;
    const sinceOpen = deadline - this.#openedAt;
    try {
      if (message.type === "REQUEST") link.send({ ...message, id, deadline: sinceOpen });
      else link.send({ ...message, id, ...(sinceOpen < Number.POSITIVE_INFINITY ? { deadline: sinceOpen } : {}) });
    } catch (cause) {
      reject(cause);
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

  /** For messages: why no broker answers, if that is so. */
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
    this.#dial.stop(1000, "");
    for (const pending of [...this.#pendingReplies.values()]) pending.reject(why);
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
    if (message.type === "RESULT") pending.resolve(message.value);
    else if (message.type === "ERROR") pending.reject(new LaboroError(message.code, message.message));
    else if (message.error === undefined) pending.resolve(message.body);
    else pending.reject(new LaboroError(message.error, Buffer.from(message.body).toString() || message.error));
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
