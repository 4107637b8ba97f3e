/**
 * A broker as a member of a group that shares a store: heartbeats, changes by other brokers, and operations sent to
 * them.
 *
 * A disconnected worker may have moved to another broker. Its old broker keeps its tasks for the grace period, or until
 * another broker has the worker. So a broker tells the others when a worker joins it, and asks them when a worker
 * disconnects. The connection of a worker that has moved may still look open here. Then this broker only remembers that
 * another one has seen the worker since, and waits for the end of the connection. Clocks differ, so brokers do not
 * compare times.
 */
import { now, waitFor } from "../../base/clock.js";
import { asLaboroError, type LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import {
  onLimitsFreed,
  onRemoteIdle,
  releaseAllWaiting,
  STANDING_BUCKET,
  type StandingRecord,
} from "../../dispatch/index.js";
import { ALLOCATOR_BUCKET } from "../../model/allocation.js";
import type { WorkerId } from "../../model/ids.js";
import { LIMIT_BUCKET } from "../../model/limit.js";
import { type Group, SCHEDULE_BUCKET } from "../../model/store-group.js";
import type { Core } from "../core.js";
import { POOL_BUCKET } from "../limits.js";
import { type BrokerGroup, type GroupBroker, type LiveMember, Membership, type SelfInfo } from "./membership.js";
import { type ConnectPeer, PeerForwarder, Peers, urlOf } from "./peers.js";
import { RemoteChanges, TransactionSubmissions } from "./remote-changes.js";
import { sharedFingerprint } from "./shared-access.js";

export class WorkerMoves {
  readonly #core: Core;
  readonly #peers: Peers;
  /** Workers that look connected here, but have joined another broker since. */
  readonly #doubtful = new Set<WorkerId>();

  /** Workers that were redirected because this broker is drained. */
  readonly #redirected = new Set<WorkerId>();

  constructor(core: Core, peers: Peers) {
    this.#core = core;
    this.#peers = peers;
  }

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

  /** Whether to redirect a worker because this broker is drained and others are not. True once for each worker. */
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

/** The standings of workers at other brokers, read from the store. Those of this broker's workers are counted here. */

async function applyStandings(core: Core): Promise<void> {
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

export interface GroupOptions extends SelfInfo {
  readonly leaseMs: number;
  /** The admin token, which all brokers share. */
  readonly token: string;
  readonly log: Log;
  readonly onLeaseLost: (cause: LaboroError) => void;
  readonly connect: ConnectPeer;
}

/** Polls between two reads of the standings and limits, and between two checks for idle workers at other brokers. */
/** For the last transaction of a broker that stops. */
const LEAVE_MS = 3_000;
const POLLS_PER_STANDINGS_READ = 10;
const POLLS_PER_REBALANCE = 3;

export class BrokerInGroup implements BrokerGroup {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: GroupOptions;
  readonly #membership: Membership;
  readonly #remoteChanges: RemoteChanges;
  readonly #peers: Peers;
  readonly #submissions: TransactionSubmissions | undefined;
  readonly #listeners = new Set<() => void>();
  #polls = 0;
  #refreshing = false;
  #over = false;

  constructor(core: Core, group: Group, options: GroupOptions) {
    const { log, leaseMs, onLeaseLost, identity, token, connect } = options;
    this.#core = core;
    this.#group = group;
    this.#options = options;
    this.#peers = new Peers({ identity, token, log, connect, caFingerprint: () => sharedFingerprint(core.store) });
    this.#membership = new Membership(core, group, {
      ...{ self: options, leaseMs, log, onLeaseLost },
      onMembersChanged: (members) => this.#changed(members),
      onTasksFreed: () => this.#remoteChanges.retryLeases(),
    });
    this.#remoteChanges = new RemoteChanges(core, group, {
      log,
      onTextChanged: (bucket) => {
        if (bucket === SCHEDULE_BUCKET) core.schedules.look();
        if (bucket === ALLOCATOR_BUCKET) core.allocators.look();
        if (bucket === STANDING_BUCKET) this.#applyStandings();
        if (bucket === LIMIT_BUCKET) this.#applyLimits();
        if (bucket === POOL_BUCKET) this.#applyPools();
      },
      onLimitsFreed: () => core.decide((out) => onLimitsFreed(core.state, out, now())),
      onSubmitted: () => void this.#submissions?.take(),
      onPolled: () => this.#onPolled(),
    });
    if (group.submissions !== undefined) {
      this.#submissions = new TransactionSubmissions(core, group.submissions, log);
    }
    core.joinGroup({
      forwarder: new PeerForwarder(this.#peers, () => this.#refresh()),
      ...{ group: this, membership: this.#membership, peers: this.#peers },
      moves: new WorkerMoves(core, this.#peers),
      loadJobs: (jobs) => this.#remoteChanges.loadJobs(jobs),
      ...(this.#submissions && { submitted: (id) => this.#submissions?.find(id) ?? Promise.resolve(undefined) }),
    });
    core.maintenance.onChanged(() => {
      this.#membership.announce();
      this.#releaseLeases();
      for (const listener of [...this.#listeners]) listener();
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

  standbys(): readonly GroupBroker[] {
    return this.#membership.liveMembers.filter(({ state }) => state === "standby");
  }

  /** The URLs of brokers for laboro's own workers: this one first, then the others, fallbacks last. */
  urls(): readonly string[] {
    const { liveMembers } = this.#membership;
    const rank = (one: LiveMember): number => (one.state === "standby" ? 2 : one.identity === this.identity ? 0 : 1);
    const usable = liveMembers.filter((one) => one.state !== "draining" && !this.#isDrained(one));
    return usable
      .toSorted((a, b) => rank(a) - rank(b))
      .map(urlOf)
      .filter((url) => url !== undefined);
  }

  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Called when the listeners are open. */
  async start(): Promise<void> {
    await this.#membership.start();
    this.#remoteChanges.start();
    // They would notice by themselves, but this way their workers learn of this broker sooner.
    void this.#peers.askAll("peer.hello", {});
  }

  /** Called after the last write. From now on any broker may lease the tasks that wait here. */
  async leave(): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    this.#membership.stop();
    this.#remoteChanges.stop();
    this.#peers.close();
    const silent = (): string => "the database does not answer";
    await waitFor(this.#group.leave(), { timeoutMs: LEAVE_MS }, silent).catch((cause: unknown) => {
      const { code, message } = asLaboroError(cause);
      // Otherwise the lease ends by itself.
      if (code !== "LABORO_LEASE_LOST") this.#options.log.warn({ code }, `could not leave the group: ${message}`);
    });
  }

  #isDrained({ identity }: LiveMember): boolean {
    return identity === this.identity && this.#core.maintenance.draining;
  }

  #changed(members: readonly LiveMember[]): void {
    this.#peers.update(members.filter(({ identity }) => identity !== this.identity));
    this.#core.requests.forwardUnserved();
    for (const listener of [...this.#listeners]) listener();
  }

  #onPolled(): void {
    void this.#submissions?.take();
    this.#membership.announce();
    this.#releaseLeases();
    // Heartbeats are a few seconds old. Tasks that are released without need are leased again when slots are free.
    if (
      this.#polls % POLLS_PER_REBALANCE === 0 &&
      this.#peers.all.some(({ state, slots }) => state === "open" && slots.free > 0)
    ) {
      this.#core.decide((out) => onRemoteIdle(this.#core.state, out));
    }
    this.#core.decide((out) => onLimitsFreed(this.#core.state, out, now()));
    if (++this.#polls % POLLS_PER_STANDINGS_READ !== 0) return;
    this.#applyStandings();
    this.#applyLimits();
    this.#applyPools();
  }

  /** A broker that is drained releases its waiting tasks. */
  #releaseLeases(): void {
    const { maintenance, state } = this.#core;
    if (!maintenance.draining || this.brokers().length === 0) return;
    this.#core.decide((out) => releaseAllWaiting(state, out));
  }

  #applyStandings(): void {
    applyStandings(this.#core).catch((cause: unknown) =>
      this.#options.log.info({ error: String(cause) }, "cannot read the standings of workers at other brokers"),
    );
  }

  #applyLimits(): void {
    this.#core.limits
      .refresh()
      .catch((cause: unknown) => this.#options.log.info({ error: String(cause) }, "cannot read the limits"));
  }

  #applyPools(): void {
    this.#core.pools
      .refresh()
      .catch((cause: unknown) => this.#options.log.info({ error: String(cause) }, "cannot read the paused pools"));
  }

  /** Reads the members again: one may offer a new service. */
  #refresh(): void {
    if (this.#refreshing || this.#over) return;
    this.#refreshing = true;
    const done = (): void => {
      this.#refreshing = false;
    };
    this.#membership.refresh().then(done, done);
  }
}
