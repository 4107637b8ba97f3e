/**
 * Workers that go from one broker to another. Where they were, they are waited for and their tasks kept; both are over once another
 * broker has them. A broker that a worker joins says so to the others, and one that misses a worker asks for it.
 *
 * The connection of a worker that is elsewhere by now may look open here for a while. Then it is only remembered that another broker has
 * seen it since, and its own end is waited for: of two that each believe to have a worker, the later is right, and clocks differ.
 */
import type { WorkerId } from "../../model/ids.js";
import type { Core } from "../core.js";
import type { Peers } from "./peers.js";

export class WorkerMoves {
  readonly #core: Core;
  readonly #peers: Peers;
  /** Connected here as far as this broker can see, and joined another since. */
  readonly #doubtful = new Set<WorkerId>();

  /** By this broker, since it is drained. */
  readonly #redirected = new Set<WorkerId>();

  constructor(core: Core, peers: Peers) {
    this.#core = core;
    this.#peers = peers;
  }

  /** A worker has joined this broker. */
  joined(worker: WorkerId): void {
    this.#doubtful.delete(worker);
    void this.#peers.askAll("peer.joined", { worker });
  }

  /** A worker's connection to this broker has ended, and it may come back. */
  disconnected(worker: WorkerId): void {
    this.#doubtful.delete(worker);
    void this.#peers.askAll<{ here: boolean }>("peer.has", { worker }).then((answers) => {
      if (answers.some(({ answer }) => answer.here)) this.#core.workerMoved(worker);
    });
  }

  /** Whether a worker that is here is to go elsewhere, because this broker is drained and there are others. Once for each. */
  shouldRedirect(worker: WorkerId): boolean {
    const { maintenance, group } = this.#core;
    if (!maintenance.draining) this.#redirected.clear();
    if (!maintenance.draining || group === undefined || group.brokers().length === 0) return false;
    if (this.#redirected.has(worker)) return false;
    this.#redirected.add(worker);
    return true;
  }

  /** Another broker says that a worker has joined it. */
  joinedElsewhere(worker: WorkerId): object {
    if (this.#core.portOf(worker) !== undefined) this.#doubtful.add(worker);
    else this.#core.workerMoved(worker);
    return {};
  }

  isHere(worker: WorkerId): boolean {
    return this.#core.portOf(worker) !== undefined && !this.#doubtful.has(worker);
  }
}
