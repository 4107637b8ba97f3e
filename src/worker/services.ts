/** The services that a worker offers, as functions of this process. */
import { asLaboroError, type ErrorCode, LaboroError } from "../base/errors.js";

export interface CallContext {
  /** Aborted when the client no longer waits. */
  readonly signal: AbortSignal;
}

/** A call that can be aborted. A signal is costly to create, and most handlers never read it. */
export class AbortableCall implements CallContext {
  #controller: AbortController | undefined;
  #aborted = false;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  abort(): void {
    this.#aborted = true;
    this.#controller?.abort();
  }
}

export type Handler = (
  body: Uint8Array,
  context: CallContext,
) => Uint8Array | string | undefined | Promise<Uint8Array | string | undefined>;

export interface ServiceReply {
  readonly body: Uint8Array;
  readonly error?: ErrorCode;
}

const EMPTY = new Uint8Array(0);

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

  /** Never throws: an error becomes the reply. Returns no promise if the handler returns none. */
  call(service: string, body: Uint8Array, context: CallContext): ServiceReply | Promise<ServiceReply> {
    const handler = this.#handlers.get(service);
    if (handler === undefined) return failure(`this worker does not offer ${service}`);
    try {
      const answer = handler(body, context);
      return answer instanceof Promise ? answer.then(success, failure) : success(answer);
    } catch (cause) {
      return failure(cause);
    }
  }
}

function success(answer: Uint8Array | string | undefined): ServiceReply {
  if (answer === undefined) return { body: EMPTY };
  return { body: typeof answer === "string" ? Buffer.from(answer) : answer };
}

function failure(cause: unknown): ServiceReply {
  const text = typeof cause === "string" ? cause : asLaboroError(cause).message;
  const large = cause instanceof LaboroError && cause.code === "LABORO_BODY_TOO_LARGE";
  return { error: large ? cause.code : "LABORO_SERVICE_FAILED", body: Buffer.from(text) };
}
