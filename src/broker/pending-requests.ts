/** Requests under way: what was asked, by whom, and where its answer goes. Dispatch knows them by number only. */

import { now } from "../base/clock.js";
import type { ErrorCode } from "../base/errors.js";
import { type Call, type Decisions, isServed, onForget, onReply, onRequest, type State } from "../dispatch/index.js";
import { RequestId, type WorkerId } from "../model/ids.js";
import type { WorkerPort } from "./core.js";
import { ServiceStats } from "./stats/service-stats.js";
import type { BrokerCounters } from "./stats/counters.js";

/** `attachment` is what a worker of the asker's own protocol has for it. */
export type Reply = (body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown) => void;

export type Decide = <T>(step: (out: Decisions) => T) => T;

export interface ServiceRequest {
  readonly service: string;
  readonly pool: string;
  readonly body: Uint8Array;
  readonly timeoutMs: number;
  readonly retry: boolean;
  /** For a worker of the same protocol, which gets it beside the body; no other can make anything of it. */
  readonly attachment?: unknown;
  /** It comes from another broker, which has nobody for it: it is not sent on. */
  readonly forwarded?: boolean;
}

/** Workers of other brokers. */
export interface RequestForwarder {
  /** Whether any of them offers this. */
  canServe(service: string, pool: string): boolean;
  /** The answer comes later, once; the function takes the question back. */
  forward(asking: ServiceRequest, reply: Reply): () => void;
}

interface PendingRequest {
  readonly request: ServiceRequest;
  readonly receivedAt: number;
  readonly reply: Reply;
}

const EMPTY = new Uint8Array(0);

export class PendingRequests {
  readonly serviceStats = new ServiceStats();
  readonly #state: State;
  readonly #decide: Decide;
  readonly #portOf: (worker: WorkerId) => WorkerPort | undefined;
  readonly #counters: BrokerCounters;
  readonly #pending = new Map<RequestId, PendingRequest>();
  /** Where the brokers are several. */
  forwarder: RequestForwarder | undefined;
  /** Requests at other brokers, and how to take them back. */
  readonly #forwarded = new Map<RequestId, () => void>();
  #numbers = 0;

  constructor(state: State, decide: Decide, portOf: (worker: WorkerId) => WorkerPort | undefined, counters: BrokerCounters) {
    this.#state = state;
    this.#decide = decide;
    this.#portOf = portOf;
    this.#counters = counters;
  }

  add(request: ServiceRequest, reply: Reply): RequestId {
    const id = RequestId(++this.#numbers);
    const asked = { asking: request, since: now(), reply };
    this.#pending.set(id, asked);
    if (this.#shouldForward(request)) this.#forward(id, asked);
    else this.#enqueue(id, asked);
    return id;
  }

  cancel(id: RequestId): void {
    this.#forwarded.get(id)?.();
    this.#forwarded.delete(id);
    this.#decide((out) => onForget(this.#state, out, id));
    this.#pending.delete(id);
  }

  /** Others may have workers now for what waits here in vain. */
  forwardUnserved(): void {
    for (const [id, asked] of this.#pending) {
      const waiting = this.#state.requests.get(id);
      if (waiting === undefined || waiting.worker !== undefined || !this.#shouldForward(asked.request)) continue;
      this.#decide((out) => onForget(this.#state, out, id));
      this.#forward(id, asked);
    }
  }

  #enqueue(id: RequestId, { request: asking, receivedAt: since }: PendingRequest): void {
    const { service, pool, timeoutMs, retry } = asking;
    this.#decide((out) => onRequest(this.#state, out, { id, service, pool, deadline: since + timeoutMs, retry }));
  }

  #shouldForward({ service, pool, forwarded: sentOn }: ServiceRequest): boolean {
    if (this.forwarder === undefined || sentOn === true || isServed(this.#state, service, pool)) return false;
    return this.forwarder.canServe(service, pool);
  }

  #forward(id: RequestId, asked: PendingRequest): void {
    const { request: asking, receivedAt: since } = asked;
    const timeoutMs = Math.max(1, since + asking.timeoutMs - now());
    const back = this.forwarder?.forward({ ...asking, timeoutMs }, (body, error) => {
      if (!this.#forwarded.delete(id)) return;
      if (error === "LABORO_BROKER_GONE" && asking.retry && now() < since + asking.timeoutMs) {
        this.#enqueue(id, asked);
      } else {
        this.#answer(id, body, error === "LABORO_BROKER_GONE" ? "LABORO_WORKER_LOST" : error);
      }
    });
    if (back !== undefined) this.#forwarded.set(id, back);
  }

  replied(worker: WorkerId, id: RequestId, body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown): void {
    const wanted = this.#decide((out) => onReply(this.#state, out, worker, id, now()));
    if (wanted) this.#answer(id, body, error, attachment);
    // From one that lost it: another may be at it, and its asker waits.
    else if (!this.#state.requests.has(id)) this.#pending.delete(id);
  }

  /** What dispatch wants done about a request. */
  execute(call: Call): void {
    if (call.kind === "refuse") {
      this.#answer(call.request, new TextEncoder().encode(call.why), call.code);
      return;
    }
    const port = this.#portOf(call.worker);
    const asked = this.#pending.get(call.request);
    if (port === undefined) return;
    if (call.kind === "uncall") {
      port.cancelCall(call.request);
    } else if (asked !== undefined) {
      const { service, body, timeoutMs, attachment } = asked.request;
      port.call(call.request, service, body, Math.max(1, asked.receivedAt + timeoutMs - now()), attachment);
    }
  }

  stop(): void {
    for (const back of this.#forwarded.values()) back();
    this.#forwarded.clear();
    for (const id of [...this.#pending.keys()]) this.#answer(id, EMPTY, "LABORO_BROKER_STOPPING");
  }

  #answer(id: RequestId, body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown): void {
    const asked = this.#pending.get(id);
    if (asked === undefined) return;
    this.#pending.delete(id);
    const { request: asking, receivedAt: since, reply } = asked;
    const ended = now();
    this.serviceStats.add(asking.service, asking.pool, ended, ended - since, error !== undefined);
    this.#counters.requestCompleted(ended - since, error !== undefined);
    reply(body, error, attachment);
  }
}
