/** Requests that this worker is answering. They belong to one connection: when it ends, nobody waits for them. */
import type { ErrorCode } from "../model/errors.js";
import type { FromWorker, ToWorker } from "../protocols/laboro/messages.js";
import type { Services } from "./services.js";

type Call = Extract<ToWorker, { type: "CALL" }>;

export class Calls {
  readonly #services: Services;
  readonly #underWay = new Map<number, AbortController>();

  constructor(services: Services) {
    this.#services = services;
  }

  /** Every call gets a reply, an aborted one too: until then its slot is not free. */
  answer({ id, service, body }: Call, send: (message: FromWorker) => void): void {
    const aborter = new AbortController();
    this.#underWay.set(id, aborter);
    const reply = (served: { body: Uint8Array; error?: ErrorCode }): void => {
      // A connection later the same number may be another's.
      if (this.#underWay.get(id) !== aborter) return;
      this.#underWay.delete(id);
      send({ type: "REPLY", id, ...served });
    };
    const answer = this.#services.call(service, body, aborter.signal);
    if (answer instanceof Promise) void answer.then(reply);
    else reply(answer);
  }

  abort(id: number): void {
    this.#underWay.get(id)?.abort();
  }

  /** Tell every handler that nobody waits; their replies still come. */
  abortAll(): void {
    for (const aborter of this.#underWay.values()) aborter.abort();
  }

  /** The connection is gone, and with it whoever waited. */
  forgetAll(): void {
    this.abortAll();
    this.#underWay.clear();
  }
}
