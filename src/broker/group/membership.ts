/**
 * A broker as a member of its group: its heartbeats, the other members, and the tasks of dead brokers.
 *
 *   leading    the lease is valid: the last heartbeat was sent less than 80 % of the lease ago, by this machine's clock
 *   cut off    no heartbeat has reached the store for that long: no tasks are assigned. Workers stay connected
 *   lost       other brokers have taken over its tasks: it must reopen
 *
 * The store counts the lease from the arrival of a heartbeat, this broker from its sending. So this broker stops first.
 */
import { hostname } from "node:os";
import { performance } from "node:perf_hooks";
import { now } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import * as s from "../../model/schema.js";
import type { Group, Member } from "../../model/store-group.js";
import type { Core } from "../core.js";
import { countWorkers } from "../stats/counters.js";

// What a broker publishes about itself with each heartbeat. Other brokers may have another version, so it is validated.

const MOST = 100_000;

const heartbeatInfo = s.object({
  /** Kept in the data directory, so it is the same over restarts. */
  identity: s.text(),
  /** Shown to people. */
  name: s.text(),
  version: s.text(),
  host: s.text(),
  pid: s.count(),
  /** `standby` is a fallback whose listeners are closed. */
  state: s.choice("open", "draining", "standby"),
  fallback: s.flag(),
  listeners: s.list(s.object({ name: s.text(), url: s.text() }), 100),
  workers: s.count(),
  slots: s.object({ total: s.number(), free: s.number() }),
  /** What its workers offer. */
  services: s.list(s.object({ pool: s.text(), service: s.text() }), MOST),
  /** Average duration of its latest commits, in milliseconds. */
  commitMs: s.number(),
});

export type HeartbeatInfo = s.ReadType<typeof heartbeatInfo>;

/** Facts that the core does not know. */
export interface SelfInfo {
  readonly identity: string;
  readonly version: string;
  readonly fallback: boolean;
  listeners(): readonly { readonly name: string; readonly url: string }[];
}

export function ownHeartbeatInfo(core: Core, self: SelfInfo): HeartbeatInfo {
  const listeners = self.listeners();
  const { workers, slots } = countWorkers(core);
  return {
    identity: self.identity,
    name: nameOf(listeners),
    version: self.version,
    host: hostname(),
    pid: process.pid,
    state: core.maintenance.draining ? "draining" : "open",
    fallback: self.fallback,
    listeners,
    workers: workers.connected,
    slots,
    services: servicesIn(core),
    commitMs: Math.round(core.commitMs * 10) / 10,
  };
}

/** Host and port of the main listener. */
export function nameOf(listeners: HeartbeatInfo["listeners"]): string {
  const main = listeners.find(({ name }) => name === "main");
  return main === undefined ? hostname() : new URL(main.url).host;
}

function servicesIn(core: Core): HeartbeatInfo["services"] {
  const found = new Map<string, { pool: string; service: string }>();
  for (const { connected, draining, standing, profile } of core.state.workers.values()) {
    if (!connected || draining || standing === "banned") continue;
    const { pool, services } = profile;
    for (const service of services) found.set(`${pool}\0${service}`, { pool, service });
  }
  return [...found.values()].slice(0, MOST);
}

/** Undefined if this version cannot read it. Unknown fields are ignored. */
export function readHeartbeatInfo(text: string): HeartbeatInfo | undefined {
  try {
    const known = Object.entries(JSON.parse(text) as object).filter(([name]) => name in heartbeatInfo.shape);
    return heartbeatInfo.read(Object.fromEntries(known), "info");
  } catch {
    return undefined;
  }
}

/** The brokers that share a store, for sessions that redirect their peers. */
export interface GroupBroker {
  readonly identity: string;
  /** By name. A listener with several ports has one entry for each, in the order of its ports. */
  readonly listeners: readonly { readonly name: string; readonly url: string }[];
}

export interface BrokerGroup {
  /** The identity of this broker. */
  readonly identity: string;
  /** Its name, for people. */
  readonly name?: string | undefined;
  /** The brokers that are alive and accept work, with this one unless it is being drained. */
  brokers(): readonly GroupBroker[];
  /** Fallbacks, with the listeners that they open when no other broker is left. */
  standbys?(): readonly GroupBroker[];
  /** The URLs of brokers for laboro's own workers, the best first. */
  urls?(): readonly string[];
  /** Calls `listener` when the brokers have changed. Returns the function that removes it. */
  onChanged?(listener: () => void): () => void;
}

export const DEFAULT_LEASE_MS = 10_000;
const HEARTBEATS_PER_LEASE = 3;
const SAFE_FRACTION = 0.8;
/** After a failed heartbeat the next one follows sooner. */
const RETRY_FRACTION = 0.1;

export interface LiveMember extends HeartbeatInfo {
  readonly epoch: number;
  readonly started: number;
  /** The age of its last heartbeat, by the store's clock. */
  readonly heartbeatAgeMs: number;
}

interface MembershipOptions {
  readonly self: SelfInfo;
  readonly leaseMs: number;
  readonly log: Log;
  /** The lease was lost. Called once. */
  readonly onLeaseLost: (cause: LaboroError) => void;
  /** Members have joined, left or changed what they publish. */
  readonly onMembersChanged: (members: readonly LiveMember[]) => void;
  /** Waiting tasks of a dead broker can be leased now. */
  readonly onTasksFreed: () => void;
}

export class Membership {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: MembershipOptions;
  /** Epochs of dead brokers whose claims are not taken over yet. */
  readonly #dead = new Set<number>();
  #liveMembers: readonly LiveMember[] = [];
  /** What this broker last announced. */
  #announced = "";
  #announceAgain = false;
  #failing = false;
  #timer: NodeJS.Timeout | undefined;
  #limit: NodeJS.Timeout | undefined;
  #turn: Promise<void> | undefined;
  #cutOff = false;
  #over = false;

  constructor(core: Core, group: Group, options: MembershipOptions) {
    this.#core = core;
    this.#group = group;
    this.#options = options;
  }

  get self(): SelfInfo {
    return this.#options.self;
  }

  /** Includes this broker. */
  get liveMembers(): readonly LiveMember[] {
    return this.#liveMembers;
  }

  /** Resolves after the first heartbeat; rejects if it fails. */
  async start(): Promise<void> {
    await this.#heartbeat();
    await this.refresh();
    this.#schedule(this.#interval);
  }

  stop(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#limit);
  }

  /** Sends a heartbeat now if what this broker publishes has changed. */
  announce(): void {
    if (this.#announced === announcement([ownHeartbeatInfo(this.#core, this.#options.self)])) return;
    this.#announceAgain = this.#turn !== undefined;
    this.#schedule(0);
  }

  /** Reads the members again. */
  async refresh(): Promise<void> {
    const members = await this.#group.members();
    const latest = Math.max(...members.map(({ lastHeartbeat }) => lastHeartbeat));
    const live = members.flatMap((member) => liveMember(member, latest));
    const changed = announcement(live) !== announcement(this.#liveMembers);
    this.#liveMembers = live;
    if (changed && !this.#over) this.#options.onMembersChanged(live);
  }

  get #interval(): number {
    return this.#options.leaseMs / HEARTBEATS_PER_LEASE;
  }

  #schedule(ms: number): void {
    if (this.#over || this.#turn !== undefined) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#turn = this.#act().finally(() => {
        this.#turn = undefined;
      });
      void this.#turn.then(() => this.#schedule(this.#pause()));
    }, ms);
  }

  #pause(): number {
    const again = this.#announceAgain;
    this.#announceAgain = false;
    return again ? 0 : this.#failing ? this.#interval * RETRY_FRACTION : this.#interval;
  }

  async #act(): Promise<void> {
    try {
      await this.#heartbeat();
      await this.refresh();
      await this.#takeOverDead();
      this.#failing = false;
    } catch (cause) {
      this.#failing = true;
      const error = asLaboroError(cause);
      if (this.#over) return;
      if (error.code === "LABORO_LEASE_LOST") {
        this.stop();
        this.#options.onLeaseLost(error);
      } else {
        this.#options.log.warn({ code: error.code }, `the heartbeat failed: ${error.message}`);
      }
    }
  }

  async #heartbeat(): Promise<void> {
    const info = ownHeartbeatInfo(this.#core, this.#options.self);
    const sent = performance.now();
    await this.#group.heartbeat(JSON.stringify(info), this.#options.leaseMs);
    if (this.#over) return;
    this.#announced = announcement([info]);
    clearTimeout(this.#limit);
    const left = sent + this.#options.leaseMs * SAFE_FRACTION - performance.now();
    this.#limit = setTimeout(() => this.#onCutOff(), Math.max(0, left));
    if (!this.#cutOff) return;
    this.#cutOff = false;
    this.#options.log.info({}, "the store answers again: dispatch resumes");
    this.#core.events.add({ kind: "broker-resumed" });
    this.#core.halts.remove("lease");
  }

  #onCutOff(): void {
    if (this.#over) return;
    this.#cutOff = true;
    const why = "no heartbeat has reached the store: no tasks are assigned until one does";
    const cause = new LaboroError("LABORO_STORE_UNAVAILABLE", why);
    this.#options.log.error({ code: cause.code }, why);
    this.#core.events.add({ kind: "broker-halted", code: cause.code, message: why });
    this.#core.halts.add("lease", cause);
    this.#schedule(0);
  }

  /** Others can lease a dead broker's waiting tasks. Tasks of its workers are kept for the grace period. */
  async #takeOverDead(): Promise<void> {
    for (const epoch of await this.#group.reap(now())) this.#dead.add(epoch);
    for (const epoch of this.#dead) {
      this.#options.log.warn(
        { epoch },
        "a broker of the group is dead; the tasks of its workers are kept for the grace period",
      );
      await this.#core.takeOver(() => this.#group.takeOverClaims(epoch));
      this.#dead.delete(epoch);
      this.#options.onTasksFreed();
    }
  }
}

function liveMember({ epoch, started, lastHeartbeat, alive, info }: Member, latest: number): LiveMember[] {
  const read = alive ? readHeartbeatInfo(info) : undefined;
  return read === undefined ? [] : [{ ...read, epoch, started, heartbeatAgeMs: Math.max(0, latest - lastHeartbeat) }];
}

/** The part that other brokers act on. The rest changes with every heartbeat. */
const announcement = (members: readonly (HeartbeatInfo & { readonly epoch?: number })[]): string =>
  JSON.stringify(
    members.map(({ epoch, identity, state, listeners, services }) => [epoch, identity, state, listeners, services]),
  );

// A lease on work that one broker does for the group. It runs by the store's clock and ends with the broker that has
// it.

const BUCKET = "lease";

export class NamedLease {
  readonly #core: Core;
  readonly #name: string;
  /** When it was first seen to be free. */
  #freeSince = 0;

  constructor(core: Core, name: string) {
    this.#core = core;
    this.#name = name;
  }

  /** Takes or renews the lease for `ms`, and returns whether it has it. Leaves a free lease to others for `yieldMs`. */
  async take(ms: number, yieldMs: number): Promise<boolean> {
    const { membership, state, store } = this.#core;
    if (!store.shared || store.group === undefined) return true;
    const now = await store.group.clock();
    const found = (await store.keyValues(BUCKET)).find(({ key }) => key === this.#name);
    const { epoch = 0, until = 0 } = found === undefined ? {} : (JSON.parse(found.value) as Record<string, number>);
    if (epoch === state.epoch && until - now > ms / 2) return true;
    if (epoch !== state.epoch) {
      const alive = membership?.liveMembers.some((one) => one.epoch === epoch) ?? true;
      if (alive && until > now) {
        this.#freeSince = 0;
        return false;
      }
      this.#freeSince ||= now;
      if (now - this.#freeSince < yieldMs) return false;
    }
    const value = JSON.stringify({ epoch: state.epoch, until: now + ms });
    return (await this.#core.put(BUCKET, this.#name, value, found?.version ?? 0)).stored;
  }
}
