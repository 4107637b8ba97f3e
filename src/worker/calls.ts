/** Requests that this worker is answering. They belong to one connection: when it ends, no client waits for them. */
import type { ErrorCode } from "../base/errors.js";
import { FRAME_LIMIT } from "../protocols/laboro/codec-limits.js";
import type { FromWorker, ToWorker } from "../protocols/laboro/messages.js";
import { AbortableCall, type Services } from "./services.js";

type Call = Extract<ToWorker, { type: "CALL" }>;

/** A reply travels in one frame, with a few words around it. */
export const REPLY_LIMIT = FRAME_LIMIT - 1024;

export class Calls {
  readonly #services: Services;
  readonly #active = new Map<number, AbortableCall>();
  readonly #onReply: () => void;
  #waiting: (() => void)[] = [];

  /** `onReply` is called after each reply. */
  constructor(services: Services, onReply: () => void = () => {}) {
    this.#services = services;
    this.#onReply = onReply;
  }

  get count(): number {
    return this.#active.size;
  }

  /** Every call gets a reply, an aborted one too: until then its slot is not free. */
  handle({ id, service, body }: Call, send: (message: FromWorker) => void): void {
    const call = new AbortableCall();
    this.#active.set(id, call);
    const reply = (served: { body: Uint8Array; error?: ErrorCode }): void => {
      // On a later connection another call may have the same id.
      if (this.#active.get(id) !== call) return;
      this.#active.delete(id);
      send({ type: "REPLY", id, ...(served.body.length > REPLY_LIMIT ? tooLarge(served.body.length) : served) });
      this.#callEnded();
    };
    const answer = this.#services.call(service, body, call);
    if (answer instanceof Promise) void answer.then(reply);
    else reply(answer);
  }

  abort(id: number): void {
    this.#active.get(id)?.abort();
  }

  /** Aborts the signal of every handler. Their replies still follow. */
  abortAll(): void {
    for (const call of this.#active.values()) call.abort();
  }

  /** The connection is gone: nobody waits for the replies. */
  forgetAll(): void {
    this.abortAll();
    this.#active.clear();
    this.#callEnded();
  }

  /** Resolves when no call is active, or after `ms`. */
  whenIdle(ms = Number.POSITIVE_INFINITY): Promise<void> {
    if (this.#active.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = ms < MAX_TIMER_MS ? setTimeout(resolve, ms) : undefined;
      this.#waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #callEnded(): void {
    if (this.#active.size === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    this.#onReply();
  }
}

const MAX_TIMER_MS = 2 ** 31 - 1;

const tooLarge = (bytes: number): { readonly body: Uint8Array; readonly error: ErrorCode } => ({
  error: "LABORO_BODY_TOO_LARGE",
  body: Buffer.from(`the reply has ${bytes} bytes, a frame holds ${FRAME_LIMIT}`),
});
