/** Requests under way: what was asked, by whom, and where its answer goes. Dispatch knows them by number only. */

import { now } from "../base/clock.js";
import type { ErrorCode } from "../base/errors.js";
import { type Call, type Decisions, isServed, onForget, onReply, onRequest, type State } from "../dispatch/index.js";
import { RequestId, type WorkerId } from "../model/ids.js";
import type { WorkerPort } from "./core.js";
import { ServiceFigures } from "./stats/service-figures.js";
import type { Tally } from "./stats/tally.js";

/** `attachment` is what a worker of the asker's own protocol has for it. */
export type Reply = (body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown) => void;

export type Decide = <T>(step: (out: Decisions) => T) => T;

export interface Asking {
  readonly service: string;
  readonly pool: string;
  readonly body: Uint8Array;
  readonly timeoutMs: number;
  readonly retry: boolean;
  /** For a worker of the same protocol, which gets it beside the body; no other can make anything of it. */
  readonly attachment?: unknown;
  /** It comes from another broker, which has nobody for it: it is not sent on. */
  readonly sentOn?: boolean;
}

/** Workers of other brokers. */
export interface Elsewhere {
  /** Whether any of them offers this. */
  has(service: string, pool: string): boolean;
  /** The answer comes later, once; the function takes the question back. */
  ask(asking: Asking, reply: Reply): () => void;
}

interface Asked {
  readonly asking: Asking;
  readonly since: number;
  readonly reply: Reply;
}

const EMPTY = new Uint8Array(0);

export class RequestDesk {
  readonly figures = new ServiceFigures();
  readonly #state: State;
  readonly #decide: Decide;
  readonly #portOf: (worker: WorkerId) => WorkerPort | undefined;
  readonly #tally: Tally;
  readonly #asked = new Map<RequestId, Asked>();
  /** Where the brokers are several. */
  elsewhere: Elsewhere | undefined;
  /** Requests at other brokers, and how to take them back. */
  readonly #away = new Map<RequestId, () => void>();
  #numbers = 0;

  constructor(state: State, decide: Decide, portOf: (worker: WorkerId) => WorkerPort | undefined, tally: Tally) {
    this.#state = state;
    this.#decide = decide;
    this.#portOf = portOf;
    this.#tally = tally;
  }

  ask(asking: Asking, reply: Reply): RequestId {
    const id = RequestId(++this.#numbers);
    const asked = { asking, since: now(), reply };
    this.#asked.set(id, asked);
    if (this.#isForOthers(asking)) this.#sendOn(id, asked);
    else this.#place(id, asked);
    return id;
  }

  forget(id: RequestId): void {
    this.#away.get(id)?.();
    this.#away.delete(id);
    this.#decide((out) => onForget(this.#state, out, id));
    this.#asked.delete(id);
  }

  /** Others may have workers now for what waits here in vain. */
  lookElsewhere(): void {
    for (const [id, asked] of this.#asked) {
      const waiting = this.#state.requests.get(id);
      if (waiting === undefined || waiting.worker !== undefined || !this.#isForOthers(asked.asking)) continue;
      this.#decide((out) => onForget(this.#state, out, id));
      this.#sendOn(id, asked);
    }
  }

  #place(id: RequestId, { asking, since }: Asked): void {
    const { service, pool, timeoutMs, retry } = asking;
    this.#decide((out) => onRequest(this.#state, out, { id, service, pool, deadline: since + timeoutMs, retry }));
  }

  #isForOthers({ service, pool, sentOn }: Asking): boolean {
    if (this.elsewhere === undefined || sentOn === true || isServed(this.#state, service, pool)) return false;
    return this.elsewhere.has(service, pool);
  }

  #sendOn(id: RequestId, asked: Asked): void {
    const { asking, since } = asked;
    const timeoutMs = Math.max(1, since + asking.timeoutMs - now());
    const back = this.elsewhere?.ask({ ...asking, timeoutMs }, (body, error) => {
      if (!this.#away.delete(id)) return;
      if (error === "LABORO_BROKER_GONE" && asking.retry && now() < since + asking.timeoutMs) {
        this.#place(id, asked);
      } else {
        this.#answer(id, body, error === "LABORO_BROKER_GONE" ? "LABORO_WORKER_LOST" : error);
      }
    });
    if (back !== undefined) this.#away.set(id, back);
  }

  replied(worker: WorkerId, id: RequestId, body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown): void {
    const wanted = this.#decide((out) => onReply(this.#state, out, worker, id, now()));
    if (wanted) this.#answer(id, body, error, attachment);
    // From one that lost it: another may be at it, and its asker waits.
    else if (!this.#state.requests.has(id)) this.#asked.delete(id);
  }

  /** What dispatch wants done about a request. */
  carryOut(call: Call): void {
    if (call.kind === "refuse") {
      this.#answer(call.request, new TextEncoder().encode(call.why), call.code);
      return;
    }
    const port = this.#portOf(call.worker);
    const asked = this.#asked.get(call.request);
    if (port === undefined) return;
    if (call.kind === "uncall") {
      port.uncall(call.request);
    } else if (asked !== undefined) {
      const { service, body, timeoutMs, attachment } = asked.asking;
      port.call(call.request, service, body, Math.max(1, asked.since + timeoutMs - now()), attachment);
    }
  }

  stop(): void {
    for (const back of this.#away.values()) back();
    this.#away.clear();
    for (const id of [...this.#asked.keys()]) this.#answer(id, EMPTY, "LABORO_BROKER_STOPPING");
  }

  #answer(id: RequestId, body: Uint8Array, error: ErrorCode | undefined, attachment?: unknown): void {
    const asked = this.#asked.get(id);
    if (asked === undefined) return;
    this.#asked.delete(id);
    const { asking, since, reply } = asked;
    const ended = now();
    this.figures.add(asking.service, asking.pool, ended, ended - since, error !== undefined);
    this.#tally.requestAnswered(ended - since, error !== undefined);
    reply(body, error, attachment);
  }
}
