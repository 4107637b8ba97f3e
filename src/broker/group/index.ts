/** A broker as one of several on one store: its heartbeat, what it hears of the others, and what it asks them. */

import { asLaboroError, type LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { onIdleElsewhere, relinquishAll, STANDING_AREA } from "../../dispatch/index.js";
import type { Group } from "../../model/store.js";
import type { BrokerGroup, GroupBroker } from "../config/group.js";
import type { Core } from "../core.js";
import type { Self } from "./about.js";
import { Forwarding } from "./forwarding.js";
import { Hearing } from "./hearing.js";
import { type LivingMember, Membership } from "./membership.js";
import { Moves } from "./moves.js";
import { type ConnectPeer, Peers, urlOf } from "./peers.js";
import { sharedFingerprint } from "./shared-access.js";
import { heedStandings } from "./standings.js";

export interface GroupOptions extends Self {
  readonly leaseMs: number;
  /** The admin's, which all brokers have. */
  readonly token: string;
  readonly log: Log;
  readonly lost: (cause: LaboroError) => void;
  readonly connect: ConnectPeer;
}

/** Looks between two of everything that hints tell, and between two at who stands idle. */
const LOOKS_A_ROUND = 10;
const LOOKS_A_SHARE = 3;

export class BrokerInGroup implements BrokerGroup {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: GroupOptions;
  readonly #membership: Membership;
  readonly #hearing: Hearing;
  readonly #peers: Peers;
  readonly #listeners = new Set<() => void>();
  #looks = 0;
  #refreshing = false;
  #over = false;

  /** From now on the core knows that there are others. */
  constructor(core: Core, group: Group, options: GroupOptions) {
    const { log, leaseMs, lost, identity, token, connect } = options;
    this.#core = core;
    this.#group = group;
    this.#options = options;
    this.#peers = new Peers({ identity, token, log, connect, caFingerprint: () => sharedFingerprint(core.store) });
    this.#membership = new Membership(core, group, {
      ...{ self: options, leaseMs, log, lost },
      changed: (living) => this.#changed(living),
      freed: () => this.#hearing.more(),
    });
    this.#hearing = new Hearing(core, group, {
      log,
      kept: (area) => {
        if (area === STANDING_AREA) this.#heedStandings();
      },
      looked: () => this.#looked(),
    });
    core.group = this;
    core.membership = this.#membership;
    core.peers = this.#peers;
    core.moves = new Moves(core, this.#peers);
    core.learn = (jobs) => this.#hearing.learn(jobs);
    core.requests.elsewhere = new Forwarding(this.#peers, () => this.#refresh());
    core.maintenance.onChanged(() => {
      this.#membership.sayAnew();
      this.#giveBack();
      for (const tell of [...this.#listeners]) tell();
    });
  }

  get identity(): string {
    return this.#options.identity;
  }

  get name(): string | undefined {
    return this.#membership.living.find(({ identity }) => identity === this.identity)?.name;
  }

  brokers(): readonly GroupBroker[] {
    return this.#membership.living.filter((one) => one.state === "open" && !this.#isDrained(one));
  }

  /** Where workers of ours find a broker: this one first, then the others, fallbacks last. */
  urls(): readonly string[] {
    const { living } = this.#membership;
    const rank = (one: LivingMember): number => (one.state === "standby" ? 2 : one.identity === this.identity ? 0 : 1);
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
    this.#hearing.start();
    // They would notice by themselves; their workers know sooner where to go.
    void this.#peers.gather("peer.hello", {});
  }

  /** After the last write. What waits here is anybody's from now on. */
  async leave(): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    this.#membership.stop();
    this.#hearing.stop();
    this.#peers.close();
    await this.#group.leave().catch((cause: unknown) => {
      const { code, message } = asLaboroError(cause);
      // Then its lease ends by itself.
      if (code !== "LABORO_LEASE_LOST") this.#options.log.warn({ code }, `the group was not told: ${message}`);
    });
  }

  #isDrained({ identity }: LivingMember): boolean {
    return identity === this.identity && this.#core.maintenance.draining;
  }

  #changed(living: readonly LivingMember[]): void {
    this.#peers.update(living.filter(({ identity }) => identity !== this.identity));
    this.#core.requests.lookElsewhere();
    for (const tell of [...this.#listeners]) tell();
  }

  #looked(): void {
    this.#membership.sayAnew();
    this.#giveBack();
    // What its last heartbeat said is a few seconds old; what is given back in vain is leased again when there is room.
    if (
      this.#looks % LOOKS_A_SHARE === 0 &&
      this.#peers.all.some(({ state, slots }) => state === "open" && slots.free > 0)
    ) {
      this.#core.decide((out) => onIdleElsewhere(this.#core.state, out));
    }
    if (++this.#looks % LOOKS_A_ROUND === 0) this.#heedStandings();
  }

  /** A broker that is drained keeps nothing from the others. */
  #giveBack(): void {
    const { maintenance, state } = this.#core;
    if (!maintenance.draining || this.brokers().length === 0) return;
    this.#core.decide((out) => relinquishAll(state, out));
  }

  #heedStandings(): void {
    heedStandings(this.#core).catch((cause: unknown) =>
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
