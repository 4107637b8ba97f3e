/**
 * Workers that move from one broker to another. The old broker keeps the tasks of a disconnected worker for the grace period; it stops as
 * soon as another broker has the worker. So a broker tells the others when a worker joins it, and asks them when a worker disconnects.
 *
 * The connection of a worker that has moved may look open here for a while. Then the broker only remembers that another one has seen it
 * since, and waits for the end of the connection. Clocks differ, so two brokers cannot compare who saw the worker last.
 */

import { STANDING_BUCKET, type StandingRecord } from "../../dispatch/index.js";
import type { WorkerId } from "../../model/ids.js";
import type { Core } from "../core.js";
import type { Peers } from "./peers.js";

export class WorkerMoves {
  readonly #core: Core;
  readonly #peers: Peers;
  /** Workers that look connected here, but have joined another broker since. */
  readonly #doubtful = new Set<WorkerId>();

  /** Workers that this broker has redirected since it is drained. */
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

  /** A worker's connection to this broker has ended; it may come back. */
  disconnected(worker: WorkerId): void {
    this.#doubtful.delete(worker);
    void this.#peers.askAll<{ here: boolean }>("peer.hasWorker", { worker }).then((answers) => {
      if (answers.some(({ answer }) => answer.here)) this.#core.workerMoved(worker);
    });
  }

  /** Whether to redirect a worker, because this broker is drained and there are others. True once for each worker. */
  shouldRedirect(worker: WorkerId): boolean {
    const { maintenance, group } = this.#core;
    if (!maintenance.draining) this.#redirected.clear();
    if (!maintenance.draining || group === undefined || group.brokers().length === 0) return false;
    if (this.#redirected.has(worker)) return false;
    this.#redirected.add(worker);
    return true;
  }

  /** Another broker reports that a worker has joined it. */
  joinedElsewhere(worker: WorkerId): object {
    if (this.#core.portOf(worker) !== undefined) this.#doubtful.add(worker);
    else this.#core.workerMoved(worker);
    return {};
  }

  isHere(worker: WorkerId): boolean {
    return this.#core.portOf(worker) !== undefined && !this.#doubtful.has(worker);
  }
}

/** The standings of workers at other brokers, read from the store. Those of workers at this broker are counted here. */

export async function applyStandings(core: Core): Promise<void> {
  const { state, store } = core;
  if (!state.settings.standing) return;
  const stored = await store.keyValues(STANDING_BUCKET);
  const here = new Set<string>();
  for (const { connected, profile } of state.workers.values()) if (connected) here.add(profile.name);
  for (const { key, value } of stored)
    if (!here.has(key)) state.standings.set(key, JSON.parse(value) as StandingRecord);
  const known = new Set(stored.map(({ key }) => key));
  for (const name of state.standings.keys()) if (!known.has(name) && !here.has(name)) state.standings.delete(name);
}
