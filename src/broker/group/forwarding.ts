/** Requests for services that only workers of other brokers offer. What comes from another broker is not sent on again. */
import { asLaboroError } from "../../base/errors.js";
import type { ServiceRequest, RequestForwarder, Reply } from "../pending-requests.js";
import type { Peer, Peers } from "./peers.js";

/** The other broker keeps the deadline; this much later it is given up here. */
const SLACK_MS = 500;

export class PeerForwarder implements RequestForwarder {
  readonly #peers: Peers;
  /** Nobody is known to offer it: the others' heartbeats may tell by now. */
  readonly #lookAgain: () => void;
  #turns = 0;

  constructor(peers: Peers, lookAgain: () => void) {
    this.#peers = peers;
    this.#lookAgain = lookAgain;
  }

  canServe(service: string, pool: string): boolean {
    const found = this.#offering(service, pool).length > 0;
    if (!found) this.#lookAgain();
    return found;
  }

  forward(request: ServiceRequest, reply: Reply): () => void {
    const unwanted = new AbortController();
    void this.#forward(request, unwanted.signal).then(
      (body) => reply(body, undefined),
      (cause: unknown) => {
        const { code, message } = asLaboroError(cause);
        reply(Buffer.from(message), code);
      },
    );
    return () => unwanted.abort();
  }

  async #forward({ service, pool, body, timeoutMs, retry }: ServiceRequest, unwanted: AbortSignal): Promise<Uint8Array> {
    const offering = this.#offering(service, pool);
    const peer = offering[this.#turns++ % Math.max(1, offering.length)];
    if (peer === undefined) throw new Error(`no broker offers ${service}`);
    const late = AbortSignal.timeout(Math.min(Math.ceil(timeoutMs) + SLACK_MS, 2 ** 31 - 1));
    return this.#peers.request(peer, { service, pool, body, timeoutMs, retry }, AbortSignal.any([unwanted, late]));
  }

  #offering(service: string, pool: string): readonly Peer[] {
    return this.#peers.all.filter(({ state, services }) => {
      return state === "open" && services.some((one) => one.service === service && one.pool === pool);
    });
  }
}
