/** The services that a worker offers, as functions of this process. */
import { types } from "node:util";
import { type ErrorCode, LaboroError } from "../base/errors.js";

export interface CallContext {
  /** Aborted when the client no longer waits, the task is cancelled or past its time limit, or the worker stops. */
  readonly signal: AbortSignal;
}

export type Answer = Uint8Array | string | undefined;

export type Handler = (body: Uint8Array, context: CallContext) => Answer | PromiseLike<Answer>;

export interface ServiceReply {
  readonly body: Uint8Array;
  readonly error?: ErrorCode;
}

const EMPTY = new Uint8Array(0);

/**
 * One call of a handler. It ends once: with the handler's reply, or past the grace of an abort. What the handler returns after that
 * is dropped.
 */
export class ServiceCall implements CallContext {
  readonly #service: string;
  #onEnd: ((reply: ServiceReply) => void) | undefined;
  /** A signal is costly to create, and most handlers never read it. */
  #controller: AbortController | undefined;
  #aborted = false;
  #abandoned = false;
  #graceEnd = Number.POSITIVE_INFINITY;
  #graceTimer: NodeJS.Timeout | undefined;

  constructor(service: string, onEnd: (reply: ServiceReply) => void) {
    this.#service = service;
    this.#onEnd = onEnd;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /** It ended past the grace, without a reply of the handler. */
  get abandoned(): boolean {
    return this.#abandoned;
  }

  /** Aborts the signal, and ends the call after the grace if the handler has not. A later call can only shorten the grace. */
  abort(graceMs: number): void {
    const graceEnd = performance.now() + graceMs;
    if (this.#onEnd === undefined || graceEnd >= this.#graceEnd) return;
    this.#graceEnd = graceEnd;
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => {
      this.#abandoned = true;
      const text = `service ${this.#service}: the handler did not end within ${Math.round(graceMs)} ms after its abort`;
      this.end(failure(new LaboroError("LABORO_SERVICE_FAILED", text)));
    }, graceMs);
    this.#aborted = true;
    this.#controller?.abort();
  }

  end(reply: ServiceReply): void {
    const onEnd = this.#onEnd;
    this.#onEnd = undefined;
    clearTimeout(this.#graceTimer);
    onEnd?.(reply);
  }
}

export class Services {
  readonly #handlers = new Map<string, Handler>();

  get names(): readonly string[] {
    return [...this.#handlers.keys()];
  }

  set(name: string, handler: Handler): void {
    this.#handlers.set(name, handler);
  }

  delete(name: string): void {
    this.#handlers.delete(name);
  }

  /** Ends the call with the handler's reply, at once if the handler returns no promise. Never throws: an error becomes the reply. */
  start(call: ServiceCall, service: string, body: Uint8Array): void {
    const handler = this.#handlers.get(service);
    if (handler === undefined) {
      call.end(failure(`this worker does not offer ${service}`));
      return;
    }
    const succeed = (answer: unknown): void => call.end(replyOf(service, answer));
    const fail = (cause: unknown): void => call.end(failure(cause));
    try {
      const answer = handler(body, call);
      if (isThenable(answer)) Promise.resolve(answer).then(succeed, fail);
      else succeed(answer);
    } catch (cause) {
      fail(cause);
    }
  }
}

const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";

/** A handler of JavaScript may return anything. */
function replyOf(service: string, answer: unknown): ServiceReply {
  if (answer === undefined) return { body: EMPTY };
  if (typeof answer === "string") return { body: Buffer.from(answer) };
  if (types.isUint8Array(answer)) return { body: answer };
  const found = answer === null ? "null" : `a value of type ${typeof answer}`;
  const expected = "expected text, a Uint8Array or undefined";
  return failure(new LaboroError("LABORO_BAD_REPLY", `service ${service}: the handler returned ${found}, ${expected}`));
}

/** Codes that reach the client. Any other error is the handler's own. */
const REPLY_CODES: ReadonlySet<ErrorCode> = new Set(["LABORO_BAD_REPLY", "LABORO_BODY_TOO_LARGE"]);

function failure(cause: unknown): ServiceReply {
  const error = cause instanceof LaboroError && REPLY_CODES.has(cause.code) ? cause.code : "LABORO_SERVICE_FAILED";
  return { error, body: Buffer.from(textOf(cause)) };
}

function textOf(cause: unknown): string {
  try {
    return String(cause instanceof Error ? cause.message : cause);
  } catch {
    return "the handler threw a value that cannot be written as text";
  }
}
