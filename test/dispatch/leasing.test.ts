/** How much a broker leases where others share the store. */
import { describe, expect, it } from "vitest";
import {
  createState,
  DEFAULT_SETTINGS,
  Decisions,
  firstLease,
  onCommitted,
  onDone,
  onJobAdded,
  onPoolPaused,
  onRemoteIdle,
  onWorkerJoined,
  onWorkerLeft,
  type State,
  signatureOfJob,
} from "../../src/dispatch/index.js";
import { JobId, SessionId, WorkerId } from "../../src/model/ids.js";
import { type Job, newJob } from "../../src/model/job.js";
import { jobSpec } from "../../src/model/job-input.js";
import type { Write } from "../../src/model/store.js";
import { ModelWorld } from "../store/model-store.js";
import { TRUE } from "../support/recipes.js";
import { checkInvariants } from "./invariants.js";

type Lease = Extract<Write, { op: "lease" }>;

/** One broker of several, on a store that answers at once. */
class Bench {
  readonly world = new ModelWorld();
  readonly epoch = this.world.begin().epoch;
  readonly state: State = createState(DEFAULT_SETTINGS, this.epoch, true);
  readonly leases: Lease[] = [];
  now = 1;

  /** Decides, stores, and learns, until nothing more follows. */
  act(step: (out: Decisions) => void): void {
    let out = new Decisions();
    step(out);
    while (out.writes.length > 0) {
      const { writes } = out;
      this.leases.push(...writes.filter((write): write is Lease => write.op === "lease"));
      const answers = this.world.apply(writes, this.epoch, this.now);
      out = new Decisions();
      onCommitted(this.state, out, writes, answers, this.now);
      checkInvariants(this.state);
    }
  }

  worker(name: string, slots: number): void {
    const profile = { name, protocol: "laboro", pool: "default", tags: [], services: [], reserveRequests: 0 };
    const more = { id: WorkerId(name), session: SessionId(name), total: { slots }, resumable: true, canPrefetch: true };
    this.act((out) => onWorkerJoined(this.state, out, { ...profile, ...more }, [], this.now));
  }

  job(count: number, more: { priority?: number; needs?: { slots: number } } = {}): Job {
    const { spec: request } = jobSpec({ recipe: TRUE, count, ...more });
    const id = JobId(this.world.jobs.size + 1);
    const job = newJob(request, id, false, 0, this.now);
    const [answer] = this.world.apply(
      [{ op: "submit", id, job: request, lease: 0, rangeId: 0 as never }],
      this.epoch,
      this.now,
    );
    if (answer?.op !== "submit") throw new Error("not stored");
    this.act((out) => onJobAdded(this.state, out, job, undefined, new Set(), this.now));
    return job;
  }

  /** Every task of a worker ends, after so long. */
  finish(name: string, tookMs: number): void {
    const worker = this.state.workers.get(WorkerId(name));
    const tasks = [...(worker?.claims.values() ?? [])]
      .flat()
      .flatMap(({ job, attempt, first, tasks: states }) =>
        [...states.keys()].filter((at) => states[at] !== 2).map((at) => ({ job: job.id, index: first + at, attempt })),
      );
    this.now += tookMs;
    const ended = { code: 0, started: this.now - tookMs, ended: this.now, outputBytes: 0 };
    this.act((out) =>
      onDone(
        this.state,
        out,
        WorkerId(name),
        tasks.map((task) => ({ ...task, ...ended })),
        this.now,
      ),
    );
  }

  /** How many tasks of such a job would be leased with its submission. */
  firstLease(more: { count: number; priority?: number }): number {
    const { spec } = jobSpec({ recipe: TRUE, ...more });
    return firstLease(this.state, signatureOfJob(this.state, spec), spec);
  }

  out(job: Job): number {
    return this.state.jobs.get(job.id)?.assigned ?? 0;
  }

  waiting(job: Job): number {
    return this.state.jobs.get(job.id)?.ready ?? 0;
  }
}

describe("a broker that shares its store", () => {
  it("leases for as many small jobs at once as there are free slots, and for the others when slots become free", () => {
    const bench = new Bench();
    const jobs = Array.from({ length: 20 }, () => bench.job(1));
    bench.worker("ann", 8);
    expect(bench.leases.map(({ job }) => job)).toEqual(jobs.slice(0, 8).map(({ id }) => id));
    bench.finish("ann", 5_000);
    expect(bench.leases.map(({ job }) => job)).toEqual(jobs.slice(0, 16).map(({ id }) => id));
  });

  it("leases nothing of a new job whose pool is paused", () => {
    const bench = new Bench();
    bench.worker("ann", 8);
    expect(bench.firstLease({ count: 1 })).toBe(8);
    bench.act((out) => onPoolPaused(bench.state, out, "default", {}, bench.now));
    expect(bench.firstLease({ count: 1 })).toBe(0);
  });

  it("leases half a second of work of small jobs once their like have been short, and gives it back to others that are idle", () => {
    const bench = new Bench();
    const jobs = Array.from({ length: 600 }, () => bench.job(1));
    bench.worker("ann", 8);
    bench.finish("ann", 20);
    const waiting = (): number => jobs.filter((job) => bench.waiting(job) === 1).length;
    expect(jobs.filter((job) => bench.out(job) === 1)).toHaveLength(8);
    expect(waiting()).toBe((8 * 500) / 20);
    expect(bench.firstLease({ count: 1 })).toBe(0);
    expect(bench.firstLease({ count: 1, priority: 1 })).toBeGreaterThan(0);
    bench.act((out) => onRemoteIdle(bench.state, out));
    expect(waiting()).toBe(0);
    for (let passed = 0; passed < 500; passed += 20) bench.finish("ann", 20);
    expect(waiting()).toBe(200);
  });

  it("leases what fits into the room there is, and nothing more while its workers are busy with it", () => {
    const bench = new Bench();
    bench.worker("w", 4);
    const job = bench.job(1_000);
    expect([bench.out(job), bench.waiting(job)]).toEqual([4, 0]);
    bench.finish("w", 5_000);
    expect([bench.out(job), bench.waiting(job)]).toEqual([4, 0]);
  });

  it("leases ahead of a job whose tasks are short", () => {
    const bench = new Bench();
    bench.worker("w", 4);
    const job = bench.job(100_000);
    bench.finish("w", 1);
    expect(bench.out(job) + bench.waiting(job)).toBeGreaterThan(1_000);
    expect(bench.leases.length).toBeLessThan(10);
  });

  it("leases nothing of what no worker here could do", () => {
    const bench = new Bench();
    bench.job(10);
    expect(bench.leases).toEqual([]);
  });

  it("shares its room among hungry jobs, and lets the urgent one go first", () => {
    const bench = new Bench();
    bench.worker("w", 4);
    const first = bench.job(1_000);
    const second = bench.job(1_000);
    for (let round = 0; round < 10; round++) bench.finish("w", 5_000);
    const done = [first, second].map(({ id }) => bench.world.jobs.get(id)?.results.size ?? 0);
    expect(Math.min(...done)).toBeGreaterThan(8);
    const urgent = bench.job(8, { priority: 10 });
    bench.finish("w", 5_000);
    expect(bench.out(urgent)).toBe(4);
    bench.finish("w", 5_000);
    expect(bench.world.jobs.get(urgent.id)?.results.size).toBe(4);
    expect(bench.out(urgent)).toBe(4);
  });

  it("lets a job of long tasks have its turn beside one of short ones", () => {
    const bench = new Bench();
    bench.worker("w", 2);
    const short = bench.job(100_000);
    bench.finish("w", 1);
    expect(bench.waiting(short)).toBeGreaterThan(0);
    const other = bench.job(10);
    for (let round = 0; round < 4; round++) bench.finish("w", 1);
    expect(bench.world.jobs.get(other.id)?.results.size ?? 0).toBeGreaterThan(0);
  });

  it("leases one wide task although it has no room, so that a worker is kept for it", () => {
    const bench = new Bench();
    bench.worker("w", 4);
    const narrow = bench.job(1_000);
    const wide = bench.job(3, { needs: { slots: 4 } });
    expect(bench.waiting(wide)).toBe(1);
    bench.finish("w", 5_000);
    expect([bench.out(wide), bench.out(narrow)]).toEqual([1, 0]);
  });

  it("gives back what waits here when others are idle, and leases it again when it has room itself", () => {
    const bench = new Bench();
    bench.worker("w", 2);
    bench.worker("x", 2);
    const job = bench.job(4);
    bench.act((out) => onWorkerLeft(bench.state, out, WorkerId("x"), bench.now));
    expect([bench.out(job), bench.waiting(job)]).toEqual([2, 2]);
    bench.act((out) => onRemoteIdle(bench.state, out));
    expect(bench.waiting(job)).toBe(0);
    const anybodys = [...bench.world.taskRanges.values()].filter(({ epoch }) => epoch === undefined);
    expect(anybodys.length).toBeGreaterThan(0);
    bench.finish("w", 5_000);
    expect(bench.out(job)).toBe(2);
  });
});
