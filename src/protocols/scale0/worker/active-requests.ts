/** The requests that a worker is answering. Each is answered at the broker that it came from. */
import { EventEmitter, once } from "node:events";
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { type Parameters, readWorkIdentifier, replyCommand, workCommandOf } from "../commands.js";
import type { Message } from "../frames.js";
import type { Scale0Link } from "./link.js";

export interface Scale0Call {
  readonly service: string;
  readonly parameters: Parameters;
  /** Aborted when the grace period of a stop is over. */
  readonly signal: AbortSignal;
}

type Frame = Uint8Array | string;
/** Gets the frames of a request and returns those of the answer. If it throws, the answer is an error. */
export type Scale0Handler = (
  body: readonly Uint8Array[],
  call: Scale0Call,
) => Frame | readonly Frame[] | Promise<Frame | readonly Frame[]>;

export class ActiveRequests {
  readonly #services: Readonly<Record<string, Scale0Handler>>;
  readonly #abort = new AbortController();
  readonly #countByLink = new Map<Scale0Link, number>();
  readonly #events = new EventEmitter<{ change: [] }>().setMaxListeners(0);

  constructor(services: Readonly<Record<string, Scale0Handler>>) {
    this.#services = services;
  }

  /** Of all brokers together. */
  get count(): number {
    let count = 0;
    for (const busy of this.#countByLink.values()) count += busy;
    return count;
  }

  /** Resolves when the answer is on its way. */
  async handle({ command, parameters, body }: Message, link: Scale0Link): Promise<void> {
    const of = readWorkIdentifier(parameters);
    const word = replyCommand(workCommandOf(command));
    this.#countByLink.set(link, (this.#countByLink.get(link) ?? 0) + 1);
    try {
      const frames = framesOf(await this.#call(this.#serviceOf(parameters), body, parameters));
      if (!link.send(word, of, frames))
        throw new LaboroError("LABORO_BODY_TOO_LARGE", "the answer is too large to send");
    } catch (cause) {
      const { message } = asLaboroError(cause);
      link.send(word, { ...of, error: message }, [Buffer.from(message)]);
    }
    const left = (this.#countByLink.get(link) ?? 1) - 1;
    if (left > 0) this.#countByLink.set(link, left);
    else this.#countByLink.delete(link);
    this.#events.emit("change");
  }

  /** A request without a service is for the only one. */
  #serviceOf({ service }: Parameters): string {
    const [only, ...others] = Object.keys(this.#services);
    return (service ?? undefined) === undefined && only !== undefined && others.length === 0 ? only : String(service);
  }

  async #call(service: string, body: readonly Uint8Array[], parameters: Parameters): Promise<Frame | readonly Frame[]> {
    const handler = Object.hasOwn(this.#services, service) ? this.#services[service] : undefined;
    if (handler === undefined) throw new LaboroError("LABORO_SERVICE_FAILED", `this worker does not offer ${service}`);
    return handler(body, { service, parameters, signal: this.#abort.signal });
  }

  /** Resolves when all requests of this broker are answered, or after `abort`. */
  async whenIdle(link: Scale0Link): Promise<void> {
    while (this.#countByLink.has(link) && !this.#abort.signal.aborted) await once(this.#events, "change");
  }

  abort(): void {
    this.#abort.abort();
    this.#events.emit("change");
  }
}

const framesOf = (answer: Frame | readonly Frame[]): Uint8Array[] =>
  (Array.isArray(answer) ? (answer as readonly Frame[]) : [answer as Frame]).map((frame) =>
    typeof frame === "string" ? Buffer.from(frame) : frame,
  );
