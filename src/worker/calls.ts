/** Requests that this worker is answering. They belong to one connection: when it ends, no client waits for them. */
import { badInput, type ErrorCode, LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import { FRAME_LIMIT } from "../protocols/laboro/codec-fields.js";
import type { FromWorker, ToWorker } from "../protocols/laboro/messages.js";
import { type CallPort, REQUEST_INFO, ServiceCall, type Services, workerStops } from "./services.js";

type Call = Extract<ToWorker, { type: "CALL" }>;

/** A reply travels in one frame, with a few words around it. */
export const REPLY_LIMIT = FRAME_LIMIT - 1024;

export class Calls {
  readonly #services: Services;
  readonly #cancelGraceMs: number;
  readonly #active = new Map<number, ServiceCall>();
  readonly #port: CallPort;
  readonly #onReply: () => void;
  #leaving = false;
  #waiting: (() => void)[] = [];

  /** A handler has `cancelGraceMs` to end after its signal was aborted. `onReply` is called after each reply. */
  constructor(services: Services, cancelGraceMs: number, log: Log, onReply: () => void = () => {}) {
    this.#services = services;
    this.#port = {
      progress: () => {},
      log: (line) => log.info({}, line.trimEnd()),
      results: () => Promise.reject(badInput("a request comes after no job")),
    };
    this.#cancelGraceMs = cancelGraceMs;
    this.#onReply = onReply;
  }

  get count(): number {
    return this.#active.size;
  }

  /** Every call gets a reply, an aborted one too: until then its slot is not free. `linkMs` is the age of the link. */
  handle({ id, service, body, deadline }: Call, linkMs: number, send: (message: FromWorker) => void): void {
    if (linkMs > deadline) {
      send({ type: "REPLY", id, ...readTooLate(service) });
      return;
    }
    const info = { ...REQUEST_INFO, deadline: Date.now() + deadline - linkMs };
    const call = new ServiceCall(service, info, this.#port, (reply) => {
      // On a later connection another call may have the same id.
      if (this.#active.get(id) !== call) return;
      this.#active.delete(id);
      const { body: answer, error, details: thrown } = reply;
      const tooLong = answer.length > REPLY_LIMIT;
      // Without a reply from a worker that leaves, the broker may give the request to another worker.
      if (this.#leaving && call.abandoned) return this.#callEnded();
      if (tooLong) send({ type: "REPLY", id, ...tooLarge(service, answer.length) });
      else if (error === undefined) send({ type: "REPLY", id, body: answer });
      else {
        const details = thrown && Buffer.from(JSON.stringify(thrown));
        send({ type: "REPLY", id, body: answer, error, details });
      }
      this.#callEnded();
    });
    this.#active.set(id, call);
    this.#services.start(call, service, body);
  }

  abort(id: number): void {
    const why = "the client does not wait for the reply any more";
    this.#active.get(id)?.abort(this.#cancelGraceMs, new LaboroError("LABORO_DEADLINE", why));
  }

  /** The worker leaves: no handler continues for longer than the grace. */
  abortAll(graceMs: number): void {
    this.#leaving = true;
    for (const call of this.#active.values()) call.abort(graceMs, workerStops());
  }

  /** The connection is gone, so nobody waits for the replies. */
  forgetAll(): void {
    const why = new LaboroError("LABORO_BROKER_GONE", "the connection to the broker has ended");
    for (const call of this.#active.values()) call.abort(this.#cancelGraceMs, why);
    this.#active.clear();
    this.#callEnded();
  }

  /** Resolves when no call is active. */
  whenIdle(): Promise<void> {
    return this.#active.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }

  #callEnded(): void {
    if (this.#active.size === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    this.#onReply();
  }
}

/** The worker was busy, or the network slow. */
const readTooLate = (service: string): { readonly body: Uint8Array; readonly error: ErrorCode } => ({
  error: "LABORO_DEADLINE",
  body: Buffer.from(`service ${service}: the worker read the request after its deadline and did not begin it`),
});

const tooLarge = (service: string, bytes: number): { readonly body: Uint8Array; readonly error: ErrorCode } => ({
  error: "LABORO_BODY_TOO_LARGE",
  body: Buffer.from(`service ${service}: the reply has ${bytes} bytes, a frame holds ${FRAME_LIMIT}`),
});
