/**
 * A broker's place in its group: its heartbeat, the others', and what the dead have left.
 *
 *   leading    the lease runs: it was renewed less than four fifths of it ago, by this machine's clock
 *   cut off    no heartbeat has arrived for that long: nothing is handed out until one does. Workers stay connected
 *   lost       the others have taken this broker for dead, and what it had for theirs: it must open anew
 *
 * The store counts the lease from when a heartbeat arrives there, this broker from when it was sent: so it stops before the lease ends.
 */
import { performance } from "node:perf_hooks";
import { now } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { Group, Member } from "../../model/store.js";
import type { Core } from "../core.js";
import { type HeartbeatInfo, ownHeartbeatInfo, readHeartbeatInfo, type SelfInfo } from "./heartbeat-info.js";

export const DEFAULT_LEASE_MS = 10_000;
const BEATS_A_LEASE = 3;
const SAFE_PART = 0.8;
/** After one that did not arrive the next follows sooner. */
const RETRY_PART = 0.1;

export interface LiveMember extends HeartbeatInfo {
  readonly epoch: number;
  readonly started: number;
  /** How long ago it gave its last sign, by the store's clock. */
  readonly heartbeatAgeMs: number;
}

export interface MembershipOptions {
  readonly self: SelfInfo;
  readonly leaseMs: number;
  readonly log: Log;
  /** The lease is gone. Called once. */
  readonly onLeaseLost: (cause: LaboroError) => void;
  /** The living have changed, or what they say of themselves. */
  readonly onMembersChanged: (living: readonly LiveMember[]) => void;
  /** Others' waiting tasks can be leased now. */
  readonly onTasksFreed: () => void;
}

export class Membership {
  readonly #core: Core;
  readonly #group: Group;
  readonly #options: MembershipOptions;
  /** Brokers that have left something to their workers. */
  readonly #dead = new Set<number>();
  #liveMembers: readonly LiveMember[] = [];
  /** What others act on of what was last said of this broker. */
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

  /** This one among them. */
  get liveMembers(): readonly LiveMember[] {
    return this.#liveMembers;
  }

  /** Resolves after the first heartbeat; rejects where it does not arrive. */
  async start(): Promise<void> {
    await this.#beat();
    await this.refresh();
    this.#schedule(this.#interval);
  }

  stop(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#limit);
  }

  /** What this broker says of itself has changed: say it now. */
  announce(): void {
    if (this.#announced === announcement([ownHeartbeatInfo(this.#core, this.#options.self)])) return;
    this.#announceAgain = this.#turn !== undefined;
    this.#schedule(0);
  }

  /** Look at the others again. */
  async refresh(): Promise<void> {
    const members = await this.#group.members();
    const latest = Math.max(...members.map(({ lastHeartbeat: lastBeat }) => lastBeat));
    const living = members.flatMap((member) => livingMember(member, latest));
    const changed = announcement(living) !== announcement(this.#liveMembers);
    this.#liveMembers = living;
    if (changed && !this.#over) this.#options.onMembersChanged(living);
  }

  get #interval(): number {
    return this.#options.leaseMs / BEATS_A_LEASE;
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
    return again ? 0 : this.#failing ? this.#interval * RETRY_PART : this.#interval;
  }

  async #act(): Promise<void> {
    try {
      await this.#beat();
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
        this.#options.log.warn({ code: error.code }, `no heartbeat, or no look at the others: ${error.message}`);
      }
    }
  }

  async #beat(): Promise<void> {
    const about = ownHeartbeatInfo(this.#core, this.#options.self);
    const sent = performance.now();
    await this.#group.heartbeat(JSON.stringify(about), this.#options.leaseMs);
    if (this.#over) return;
    this.#announced = announcement([about]);
    clearTimeout(this.#limit);
    const left = sent + this.#options.leaseMs * SAFE_PART - performance.now();
    this.#limit = setTimeout(() => this.#cut(), Math.max(0, left));
    if (!this.#cutOff) return;
    this.#cutOff = false;
    this.#options.log.info({}, "the store answers again: work goes on");
    this.#core.events.add({ kind: "broker-resumed" });
    this.#core.resume("lease");
  }

  #cut(): void {
    if (this.#over) return;
    this.#cutOff = true;
    const why = "no heartbeat has reached the store: nothing is handed out until one does";
    const cause = new LaboroError("LABORO_STORE_UNAVAILABLE", why);
    this.#options.log.error({ code: cause.code }, why);
    this.#core.events.add({ kind: "broker-halted", code: cause.code, message: why });
    this.#core.halt("lease", cause);
    this.#schedule(0);
  }

  /** What waited at a dead broker is anybody's; what its workers have is kept for them here, for the grace period. */
  async #takeOverDead(): Promise<void> {
    for (const epoch of await this.#group.reap(now())) this.#dead.add(epoch);
    for (const epoch of this.#dead) {
      this.#options.log.warn({ epoch }, "a broker of the group is dead; what its workers have is kept for them");
      await this.#core.takeOver(() => this.#group.takeOverClaims(epoch));
      this.#dead.delete(epoch);
      this.#options.onTasksFreed();
    }
  }
}

function livingMember({ epoch, started, lastHeartbeat: lastBeat, alive, info: about }: Member, latest: number): LiveMember[] {
  const said = alive ? readHeartbeatInfo(about) : undefined;
  return said === undefined ? [] : [{ ...said, epoch, started, heartbeatAgeMs: Math.max(0, latest - lastBeat) }];
}

/** What of it others act on: the rest changes with every heartbeat. */
const announcement = (members: readonly (HeartbeatInfo & { readonly epoch?: number })[]): string =>
  JSON.stringify(
    members.map(({ epoch, identity, state, listeners: doors, services }) => [epoch, identity, state, doors, services]),
  );
