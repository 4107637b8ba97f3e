/** Forwards requests for services that only workers of other brokers offer. A forwarded request is not forwarded again. */
import { asLaboroError } from "../../base/errors.js";
import type { Reply, RequestForwarder, ServiceRequest } from "../pending-requests.js";
import type { Peer, Peers } from "./peers.js";

export class PeerForwarder implements RequestForwarder {
  readonly #peers: Peers;
  /** Reads the heartbeats of the others again: one may offer the service by now. */
  readonly #refresh: () => void;
  #turns = 0;

  constructor(peers: Peers, refresh: () => void) {
    this.#peers = peers;
    this.#refresh = refresh;
  }

  canServe(service: string, pool: string): boolean {
    const found = this.#offering(service, pool).length > 0;
    if (!found) this.#refresh();
    return found;
  }

  forward(request: ServiceRequest, reply: Reply): () => void {
    const cancelled = new AbortController();
    void this.#forward(request, cancelled.signal).then(
      (body) => reply(body, undefined),
      (cause: unknown) => {
        const { code, message } = asLaboroError(cause);
        reply(Buffer.from(message), code);
      },
    );
    return () => cancelled.abort();
  }

  async #forward({ service, pool, body, timeoutMs, retry }: ServiceRequest, signal: AbortSignal): Promise<Uint8Array> {
    const offering = this.#offering(service, pool);
    const peer = offering[this.#turns++ % Math.max(1, offering.length)];
    if (peer === undefined) throw new Error(`no broker offers ${service}`);
    return this.#peers.request(peer, { service, pool, body, retry }, { timeoutMs, signal });
  }

  #offering(service: string, pool: string): readonly Peer[] {
    return this.#peers.all.filter(({ state, services }) => {
      return state === "open" && services.some((one) => one.service === service && one.pool === pool);
    });
  }
}
