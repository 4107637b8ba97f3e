/**
 * A client's end of the link. Replies may arrive in any order.
 *
 *   connecting  messages wait for HELLO_ACK
 *   open        messages are sent at once
 *   closed      by close(), by a refusal, or because the broker could not be reached: every message is rejected
 *
 * When an open link is lost, messages without a reply are rejected with LABORO_BROKER_GONE. Whether the broker received them is not known,
 * so the caller decides whether to repeat them. The link reconnects by itself.
 */
import { LaboroError } from "../base/errors.js";
import { JobId } from "../model/ids.js";
import { type Dial, dial, type LinkOf } from "../protocols/laboro/dial.js";
import { type FromClient, LINK_VERSION, type TaskOutput, type ToClient } from "../protocols/laboro/messages.js";

interface PendingReply {
  readonly message: FromClient;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: LaboroError) => void;
}

/** Resolves when it has taken the output; until then no more than a window of the same task is sent. */
export type TakeOutput = (output: TaskOutput) => Promise<void>;

export interface ClientLinkOptions {
  readonly urls: readonly string[];
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
  /** By job: what takes the output that is relayed. */
  readonly #followed = new Map<JobId, TakeOutput>();
  #link: LinkOf<"client"> | undefined;
  #closed: LaboroError | undefined;
  #lastId = 0;
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
      onOpen: (link) => link.send({ type: "HELLO", version: LINK_VERSION, name: options.name }),
      onMessages: (batch, link) => {
        for (const message of batch) this.#receive(message, link);
      },
      onDisconnected: (reason) => {
        this.#link = undefined;
        this.#rejectAll(new LaboroError("LABORO_BROKER_GONE", `the broker is gone: ${reason.text}`));
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

  /** Sends a message with a new id and waits for its reply. `signal` cancels it. */
  sendAndWait(make: (id: number) => FromClient, signal?: AbortSignal): Promise<unknown> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    const id = ++this.#lastId;
    const cancel = (): void => this.#cancel(id);
    const reply = new Promise((resolve, reject) => {
      const message = make(id);
      this.#pendingReplies.set(id, { message, resolve, reject });
      try {
        this.#link?.send(message);
      } catch (cause) {
        this.#pendingReplies.delete(id);
        reject(cause);
      }
    });
    if (signal === undefined) return reply;
    signal.addEventListener("abort", cancel);
    return reply.finally(() => signal.removeEventListener("abort", cancel));
  }

  /** `take` gets the output of this job that is not kept, in the order of each task; twice, where it was not yet taken at a cut. */
  follow(job: number, take: TakeOutput): void {
    const id = JobId(job);
    this.#followed.set(id, take);
    this.#link?.send({ type: "FOLLOW", job: id });
  }

  close(why = new LaboroError("LABORO_BROKER_GONE", "this client was closed")): void {
    if (this.#closed !== undefined) return;
    this.#closed = why;
    clearTimeout(this.#deadline);
    this.#dial.stop(1000, "");
    this.#rejectAll(why);
    for (const wake of this.#readyWaiters.splice(0)) wake();
  }

  #cancel(id: number): void {
    const pending = this.#pendingReplies.get(id);
    if (pending === undefined) return;
    this.#pendingReplies.delete(id);
    if (pending.message.type === "REQUEST") this.#link?.send({ type: "CANCEL_REQUEST", id });
    pending.reject(new LaboroError("LABORO_DEADLINE", "the caller no longer waits"));
  }

  #rejectAll(error: LaboroError): void {
    const pending = [...this.#pendingReplies.values()];
    this.#pendingReplies.clear();
    for (const { reject } of pending) reject(error);
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
      for (const pending of this.#pendingReplies.values()) link.send(pending.message);
      for (const job of this.#followed.keys()) link.send({ type: "FOLLOW", job });
      for (const wake of this.#readyWaiters.splice(0)) wake();
      return;
    }
    const pending = this.#pendingReplies.get(message.id);
    if (pending === undefined) return;
    this.#pendingReplies.delete(message.id);
    if (message.type === "RESULT") pending.resolve(message.value);
    else if (message.type === "ERROR") pending.reject(new LaboroError(message.code, message.message));
    else if (message.error === undefined) pending.resolve(message.body);
    else pending.reject(new LaboroError(message.error, Buffer.from(message.body).toString() || message.error));
  }

  #take(message: ToClient & { type: "RELAY" }, link: LinkOf<"client">): void {
    const { job, index, attempt, offset, bytes } = message;
    const taken = this.#followed.get(job)?.(message) ?? Promise.resolve();
    const report = (): void => link.send({ type: "TAKEN", job, index, attempt, end: offset + bytes.length });
    taken.then(report, report);
  }
}
