/** A broker as one of several on one store: its heartbeat, what it hears of the others, and what it asks them. */

import { asLaboroError, type LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { onIdleElsewhere, relinquishAll, STANDING_AREA } from "../../dispatch/index.js";
import type { Group } from "../../model/store.js";
import type { BrokerGroup, GroupBroker } from "../config/group.js";
import type { Core } from "../core.js";
import type { SelfInfo } from "./heartbeat-info.js";
import { PeerForwarder } from "./forwarding.js";
import { RemoteChanges } from "./remote-changes.js";
import { type LiveMember, Membership } from "./membership.js";
import { WorkerMoves } from "./worker-moves.js";
import { type ConnectPeer, Peers, urlOf } from "./peers.js";
import { sharedFingerprint } from "./shared-access.js";
import { applyStandings } from "./standings.js";

export interface GroupOptions extends SelfInfo {
  readonly leaseMs: number;
  /** The admin's, which all brokers have. */
  readonly token: string;
  readonly log: Log;
  readonly onLeaseLost: (cause: LaboroError) => void;
  readonly connect: ConnectPeer;
}

/** Looks between two of everything that hints tell, and between two at who stands idle. */
const POLLS_PER_STANDINGS_READ = 10;
const POLLS_PER_REBALANCE = 3;

export class BrokerInGroup implements BrokerGroup {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: GroupOptions;
  readonly #membership: Membership;
  readonly #remoteChanges: RemoteChanges;
  readonly #peers: Peers;
  readonly #listeners = new Set<() => void>();
  #polls = 0;
  #refreshing = false;
  #over = false;

  /** From now on the core knows that there are others. */
  constructor(core: Core, group: Group, options: GroupOptions) {
    const { log, leaseMs, onLeaseLost: lost, identity, token, connect } = options;
    this.#core = core;
    this.#group = group;
    this.#options = options;
    this.#peers = new Peers({ identity, token, log, connect, caFingerprint: () => sharedFingerprint(core.store) });
    this.#membership = new Membership(core, group, {
      ...{ self: options, leaseMs, log, onLeaseLost: lost },
      onMembersChanged: (living) => this.#changed(living),
      onTasksFreed: () => this.#remoteChanges.retryLeases(),
    });
    this.#remoteChanges = new RemoteChanges(core, group, {
      log,
      onTextChanged: (area) => {
        if (area === STANDING_AREA) this.#applyStandings();
      },
      onPolled: () => this.#onPolled(),
    });
    core.group = this;
    core.membership = this.#membership;
    core.peers = this.#peers;
    core.moves = new WorkerMoves(core, this.#peers);
    core.loadJobs = (jobs) => this.#remoteChanges.loadJobs(jobs);
    core.requests.forwarder = new PeerForwarder(this.#peers, () => this.#refresh());
    core.maintenance.onChanged(() => {
      this.#membership.announce();
      this.#releaseLeases();
      for (const tell of [...this.#listeners]) tell();
    });
  }

  get identity(): string {
    return this.#options.identity;
  }

  get name(): string | undefined {
    return this.#membership.liveMembers.find(({ identity }) => identity === this.identity)?.name;
  }

  brokers(): readonly GroupBroker[] {
    return this.#membership.liveMembers.filter((one) => one.state === "open" && !this.#isDrained(one));
  }

  /** Where workers of ours find a broker: this one first, then the others, fallbacks last. */
  urls(): readonly string[] {
    const { liveMembers: living } = this.#membership;
    const rank = (one: LiveMember): number => (one.state === "standby" ? 2 : one.identity === this.identity ? 0 : 1);
    const usable = living.filter((one) => one.state !== "draining" && !this.#isDrained(one));
    return usable
      .toSorted((a, b) => rank(a) - rank(b))
      .map(urlOf)
      .filter((url) => url !== undefined);
  }

  onChanged(tell: () => void): () => void {
    this.#listeners.add(tell);
    return () => this.#listeners.delete(tell);
  }

  /** The doors are open. */
  async start(): Promise<void> {
    await this.#membership.start();
    this.#remoteChanges.start();
    // They would notice by themselves; their workers know sooner where to go.
    void this.#peers.askAll("peer.hello", {});
  }

  /** After the last write. What waits here is anybody's from now on. */
  async leave(): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    this.#membership.stop();
    this.#remoteChanges.stop();
    this.#peers.close();
    await this.#group.leave().catch((cause: unknown) => {
      const { code, message } = asLaboroError(cause);
      // Then its lease ends by itself.
      if (code !== "LABORO_LEASE_LOST") this.#options.log.warn({ code }, `the group was not told: ${message}`);
    });
  }

  #isDrained({ identity }: LiveMember): boolean {
    return identity === this.identity && this.#core.maintenance.draining;
  }

  #changed(living: readonly LiveMember[]): void {
    this.#peers.update(living.filter(({ identity }) => identity !== this.identity));
    this.#core.requests.forwardUnserved();
    for (const tell of [...this.#listeners]) tell();
  }

  #onPolled(): void {
    this.#membership.announce();
    this.#releaseLeases();
    // What its last heartbeat said is a few seconds old; what is given back in vain is leased again when there is room.
    if (
      this.#polls % POLLS_PER_REBALANCE === 0 &&
      this.#peers.all.some(({ state, slots }) => state === "open" && slots.free > 0)
    ) {
      this.#core.decide((out) => onIdleElsewhere(this.#core.state, out));
    }
    if (++this.#polls % POLLS_PER_STANDINGS_READ === 0) this.#applyStandings();
  }

  /** A broker that is drained keeps nothing from the others. */
  #releaseLeases(): void {
    const { maintenance, state } = this.#core;
    if (!maintenance.draining || this.brokers().length === 0) return;
    this.#core.decide((out) => relinquishAll(state, out));
  }

  #applyStandings(): void {
    applyStandings(this.#core).catch((cause: unknown) =>
      this.#options.log.info({ error: String(cause) }, "how workers of other brokers behave could not be read"),
    );
  }

  /** Somebody may offer a service since a moment ago. */
  #refresh(): void {
    if (this.#refreshing || this.#over) return;
    this.#refreshing = true;
    const done = (): void => {
      this.#refreshing = false;
    };
    this.#membership.refresh().then(done, done);
  }
}
