/** Unanswered requests to services: their content, and where the answer goes. Dispatch knows only their numbers. */
import { now } from "../base/clock.js";
import type { ErrorCode } from "../base/errors.js";
import {
  type Call,
  type Decisions,
  isServiceOffered,
  onReply,
  onRequest,
  onRequestCancelled,
  type State,
} from "../dispatch/index.js";
import { RequestId, type WorkerId } from "../model/ids.js";
import type { WorkerPort } from "./core.js";
import { type BrokerCounters, ServiceStats } from "./stats/counters.js";

/** `attachment`: from a worker of the client's protocol. */
export type Reply = (body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown) => void;

export type Decide = <T>(step: (out: Decisions) => T) => T;

export interface ServiceRequest {
  readonly service: string;
  readonly pool: string;
  readonly body: Uint8Array;
  readonly timeoutMs: number;
  readonly retry: boolean;
  /** For a worker of the same protocol. Other workers ignore it. */
  readonly attachment?: unknown;
  /** From another broker, so it is not forwarded again. */
  readonly forwarded?: boolean;
}

/** Workers of other brokers. */
export interface RequestForwarder {
  canServe(service: string, pool: string): boolean;
  /** `reply` is called once. Returns the function that cancels the request. */
  forward(request: ServiceRequest, reply: Reply): () => void;
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
  /** Set in a group. */
  forwarder: RequestForwarder | undefined;
  /** Requests at other brokers, with the function that cancels each. */
  readonly #forwarded = new Map<RequestId, () => void>();
  #numbers = 0;

  constructor(
    state: State,
    decide: Decide,
    portOf: (worker: WorkerId) => WorkerPort | undefined,
    counters: BrokerCounters,
  ) {
    this.#state = state;
    this.#decide = decide;
    this.#portOf = portOf;
    this.#counters = counters;
  }

  add(request: ServiceRequest, reply: Reply): RequestId {
    const id = RequestId(++this.#numbers);
    const pending = { request, receivedAt: now(), reply };
    this.#pending.set(id, pending);
    if (this.#shouldForward(request)) this.#forward(id, pending);
    else this.#enqueue(id, pending);
    return id;
  }

  cancel(id: RequestId): void {
    this.#forwarded.get(id)?.();
    this.#forwarded.delete(id);
    this.#decide((out) => onRequestCancelled(this.#state, out, id));
    this.#pending.delete(id);
  }

  /** Forwards requests that no worker here can serve but another broker can. */
  forwardUnserved(): void {
    for (const [id, pending] of this.#pending) {
      const waiting = this.#state.requests.get(id);
      if (waiting === undefined || waiting.worker !== undefined || !this.#shouldForward(pending.request)) continue;
      this.#decide((out) => onRequestCancelled(this.#state, out, id));
      this.#forward(id, pending);
    }
  }

  #enqueue(id: RequestId, { request, receivedAt }: PendingRequest): void {
    const { service, pool, timeoutMs, retry } = request;
    this.#decide((out) => onRequest(this.#state, out, { id, service, pool, deadline: receivedAt + timeoutMs, retry }));
  }

  #shouldForward({ service, pool, forwarded }: ServiceRequest): boolean {
    if (this.forwarder === undefined || forwarded === true || isServiceOffered(this.#state, service, pool))
      return false;
    return this.forwarder.canServe(service, pool);
  }

  #forward(id: RequestId, pending: PendingRequest): void {
    const { request, receivedAt } = pending;
    const deadline = receivedAt + request.timeoutMs;
    const timeoutMs = Math.max(1, deadline - now());
    const cancel = this.forwarder?.forward({ ...request, timeoutMs }, (body, error, attachment) => {
      if (!this.#forwarded.delete(id)) return;
      if (error === "LABORO_BROKER_GONE" && request.retry && now() < deadline) {
        this.#enqueue(id, pending);
      } else {
        this.#answer(id, body, error === "LABORO_BROKER_GONE" ? "LABORO_WORKER_LOST" : error, attachment);
      }
    });
    if (cancel !== undefined) this.#forwarded.set(id, cancel);
  }

  replied(worker: WorkerId, id: RequestId, body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown): void {
    const wanted = this.#decide((out) => onReply(this.#state, out, worker, id, now()));
    if (wanted) this.#answer(id, body, error, attachment);
    // From a worker that has lost the request: another worker may have it, and the client waits.
    else if (!this.#state.requests.has(id)) this.#pending.delete(id);
  }

  /** Executes a decision of dispatch about a request. */
  execute(call: Call): void {
    if (call.kind === "refuse") {
      this.#answer(call.request, new TextEncoder().encode(call.why), call.code);
      return;
    }
    const port = this.#portOf(call.worker);
    const pending = this.#pending.get(call.request);
    if (port === undefined) return;
    if (call.kind === "cancelCall") {
      port.cancelCall(call.request);
    } else if (pending !== undefined) {
      const { service, body, timeoutMs, attachment } = pending.request;
      port.call(call.request, service, body, Math.max(1, pending.receivedAt + timeoutMs - now()), attachment);
    }
  }

  stop(): void {
    for (const cancel of this.#forwarded.values()) cancel();
    this.#forwarded.clear();
    for (const id of [...this.#pending.keys()]) this.#answer(id, EMPTY, "LABORO_BROKER_STOPPING");
  }

  #answer(id: RequestId, body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    const { request, receivedAt, reply } = pending;
    const ended = now();
    this.serviceStats.add(request.service, request.pool, ended, ended - receivedAt, error !== undefined);
    this.#counters.requestCompleted(ended - receivedAt, error !== undefined);
    reply(body, error, attachment);
  }
}
