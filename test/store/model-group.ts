/** Brokers that share a world: their leases, and what they hear of each other. The world's clock is this process's. */
import { LaboroError } from "../../src/base/errors.js";
import { JobId } from "../../src/model/ids.js";
import type { LimitUse } from "../../src/model/limit.js";
import type { ClaimedRange, Epoch } from "../../src/model/store.js";
import type { Group, JobSummary, Member } from "../../src/model/store-group.js";
import type { ModelWorld } from "./model-store.js";

interface Row {
  readonly info: string;
  readonly started: number;
  readonly lastHeartbeat: number;
  readonly leaseEnds: number;
  readonly dead: boolean;
}

type Hint = Parameters<Parameters<Group["listen"]>[0]>[0];

/** As long as an engine gives a broker before its first heartbeat. */
const FIRST_LEASE_MS = 30_000;

export class ModelBrokers {
  readonly rows = new Map<Epoch, Row>();
  readonly #listeners = new Map<Epoch, (hint: Hint) => void>();
  /** While it says so, nothing can be read or written by this broker. */
  readonly cutOff = new Set<Epoch>();

  enter(epoch: Epoch): void {
    const now = Date.now();
    this.rows.set(epoch, {
      info: "{}",
      started: now,
      lastHeartbeat: now,
      leaseEnds: now + FIRST_LEASE_MS,
      dead: false,
    });
  }

  /** Throws where this broker may not write. */
  check(epoch: Epoch): void {
    this.reach(epoch);
    if (this.rows.get(epoch)?.dead === true) throw new LaboroError("LABORO_LEASE_LOST", "the lease has ended");
  }

  reach(epoch: Epoch | undefined): void {
    if (epoch === undefined || !this.cutOff.has(epoch)) return;
    throw new LaboroError("LABORO_STORE_UNAVAILABLE", "the model is out of reach");
  }

  set(epoch: Epoch, change: Partial<Row>): void {
    const row = this.rows.get(epoch);
    if (row !== undefined) this.rows.set(epoch, { ...row, ...change });
  }

  listen(epoch: Epoch, heard: (hint: Hint) => void): void {
    this.#listeners.set(epoch, heard);
  }

  tell(from: Epoch, hint: Hint): void {
    for (const [epoch, heard] of this.#listeners) {
      if (epoch !== from && !this.cutOff.has(epoch)) setImmediate(() => heard(hint));
    }
  }
}

export class ModelGroup implements Group {
  readonly #world: ModelWorld;
  readonly #epoch: Epoch;

  constructor(world: ModelWorld, epoch: Epoch) {
    this.#world = world;
    this.#epoch = epoch;
  }

  async heartbeat(info: string, leaseMs: number): Promise<void> {
    const { brokers } = this.#world;
    brokers.check(this.#epoch);
    brokers.set(this.#epoch, { info, lastHeartbeat: Date.now(), leaseEnds: Date.now() + leaseMs });
  }

  async members(): Promise<readonly Member[]> {
    const { brokers } = this.#world;
    brokers.reach(this.#epoch);
    return [...brokers.rows].map(([epoch, { info, started, lastHeartbeat, leaseEnds, dead }]) => {
      return { epoch, info, started, lastHeartbeat, alive: !dead && leaseEnds > Date.now() };
    });
  }

  async reap(now: number): Promise<readonly Epoch[]> {
    const { brokers } = this.#world;
    brokers.check(this.#epoch);
    const left: Epoch[] = [];
    for (const [epoch, { leaseEnds, dead }] of brokers.rows) {
      if (epoch === this.#epoch || leaseEnds > Date.now()) continue;
      if (!dead) brokers.set(epoch, { dead: true });
      if (this.#world.reap(epoch, now).some(({ taskRange }) => taskRange.worker !== undefined)) left.push(epoch);
    }
    return left;
  }

  async takeOverClaims(dead: Epoch): Promise<readonly ClaimedRange[]> {
    this.#world.brokers.check(this.#epoch);
    return this.#world.orphans(dead, this.#epoch);
  }

  async jobNumbers(count: number): Promise<readonly JobId[]> {
    this.#world.brokers.reach(this.#epoch);
    return Array.from({ length: count }, () => (this.#world.lastJob = JobId(this.#world.lastJob + 1)));
  }

  async clock(): Promise<number> {
    this.#world.brokers.reach(this.#epoch);
    return Date.now();
  }

  async lastJob(): Promise<JobId> {
    return this.#world.lastJob;
  }

  async limitUse(names: readonly string[]): Promise<readonly LimitUse[]> {
    return this.#world.limits.uses(names, this.#world.now);
  }

  async jobSummaries(): Promise<readonly JobSummary[]> {
    this.#world.brokers.reach(this.#epoch);
    const open = [...this.#world.jobs.values()].filter(({ job }) => job.ended === undefined && job.delayed !== true);
    return open.map(({ job }) => ({
      job: job.id,
      changeMark: JSON.stringify([job.held, job.cancels]),
      counters: job.counters,
      mayLease: job.cursor < job.count || this.#hasGivenBack(job.id),
      ownChanges: false,
    }));
  }

  listen(heard: (hint: Hint) => void): void {
    this.#world.brokers.listen(this.#epoch, heard);
  }

  async leave(): Promise<void> {
    const { brokers } = this.#world;
    brokers.check(this.#epoch);
    this.#world.reap(this.#epoch, Date.now());
    brokers.set(this.#epoch, { dead: true, leaseEnds: 0 });
  }

  #hasGivenBack(id: JobId): boolean {
    return [...this.#world.taskRanges.values()].some(
      ({ taskRange, epoch }) => epoch === undefined && taskRange.job === id && taskRange.notBefore <= Date.now(),
    );
  }
}
