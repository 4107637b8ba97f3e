/** The workbench checks after every step that the workers cannot run more than `maxRunning`, whatever they start of what they hold. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { onJobAdded, onMayLease } from "../../src/dispatch/index.js";
import { JobId, SessionId } from "../../src/model/ids.js";
import { ModelWorld } from "../store/model-store.js";
import { scaled } from "../support/scale.js";
import { Workbench } from "./workbench.js";

const RUNS = scaled(300);
const PREFETCHES = { canPrefetch: true };

/** Short tasks end at all workers until these know their rate. */
function workFor(broker: Workbench, names: readonly string[], rounds = 20): void {
  for (let round = 0; round < rounds; round++) {
    broker.now += 5;
    for (const name of names) broker.finish(name, broker.at(name).slice(0, 1));
  }
}

const held = (broker: Workbench, name: string): number => broker.at(name).length;

describe("maxRunning and prefetch", () => {
  it("a worker prefetches, and is told how many it may run at once", () => {
    for (const slots of [2, 8]) {
      const broker = new Workbench();
      broker.join("a", { ...PREFETCHES, slots });
      broker.submit({ count: 1_000, maxRunning: 2 });
      workFor(broker, ["a"]);
      expect(broker.worker("a").prefetched).toBeGreaterThan(8);
      expect(broker.sends.at(-1)).toMatchObject({ kind: "tasks", atOnce: 2 });
      expect(broker.worker("a").free.slots).toBe(slots - 2);
    }
  });

  it("workers that share the limit prefetch, each of them", () => {
    const broker = new Workbench();
    for (const name of ["a", "b"]) broker.join(name, { ...PREFETCHES, slots: 8 });
    broker.submit({ count: 1_000, maxRunning: 4 });
    workFor(broker, ["a", "b"]);
    for (const name of ["a", "b"]) expect(broker.worker(name).prefetched).toBeGreaterThan(4);
    expect((broker.atOnce.get("a 1") ?? 0) + (broker.atOnce.get("b 1") ?? 0)).toBe(4);
  });

  it("a worker that runs fewer than the limit leaves the rest of it to others", () => {
    const broker = new Workbench();
    broker.join("a", { ...PREFETCHES, slots: 2 });
    const long = broker.submit();
    const job = broker.submit({ count: 1_000, maxRunning: 2 });
    for (let round = 0; round < 20; round++) {
      broker.now += 5;
      broker.finish("a", [broker.at("a")[1] ?? ""]);
    }
    expect(broker.at("a")).toContain(`${long}.0`);
    expect(broker.worker("a").prefetched).toBeGreaterThan(4);
    broker.join("b", { slots: 2 });
    expect(broker.at("b").map((task) => task.split(".")[0])).toEqual([String(job)]);
  });

  it("prefetched tasks of a worker that may run more now are retracted and assigned again", () => {
    const broker = new Workbench();
    broker.join("a", { ...PREFETCHES, slots: 2 });
    broker.submit();
    const job = broker.submit({ count: 40, maxRunning: 2 });
    while ((broker.state.jobs.get(job)?.ready ?? 0) > 0) {
      broker.now += 5;
      broker.finish("a", [broker.at("a")[1] ?? ""]);
    }
    expect(broker.atOnce.get(`a ${job}`)).toBe(1);
    broker.finish("a", ["1.0"]);
    broker.giveBack("a", ...(broker.asked("retract").at(-1) ?? []));
    expect(broker.atOnce.get(`a ${job}`)).toBe(2);
    expect(broker.worker("a").free.slots).toBe(0);
  });

  it("slots that a worker gets later run no more of the job than it was told", () => {
    const broker = new Workbench();
    for (const name of ["a", "b"]) broker.join(name, { ...PREFETCHES, slots: 1 });
    broker.submit({ count: 1_000, maxRunning: 2 });
    workFor(broker, ["a", "b"]);
    broker.slots("a", 4);
    workFor(broker, ["a", "b"]);
    expect(held(broker, "b")).toBeGreaterThan(1);
  });

  it("nothing is retracted for an idle worker that may not run it, and its slots go to others", () => {
    const broker = new Workbench();
    broker.join("a", { ...PREFETCHES, slots: 2 });
    broker.submit({ count: 1_000, maxRunning: 2 });
    workFor(broker, ["a"]);
    broker.join("b", { ...PREFETCHES, slots: 2 });
    expect(broker.asked("retract")).toEqual([]);
    const other = broker.submit({ count: 2 });
    expect(broker.at("b")).toEqual([`${other}.0`, `${other}.1`]);
  });

  it("tasks that a worker returns take nothing of the limit from others", () => {
    const broker = new Workbench();
    broker.join("a", { ...PREFETCHES, slots: 1 });
    broker.join("b", { slots: 2 });
    broker.submit({ count: 100, maxRunning: 3 });
    workFor(broker, ["a", "b"]);
    broker.hold(1);
    const last = broker.worker("a").claims.get(JobId(1))?.at(-1);
    broker.finish(
      "a",
      broker.at("a").filter((task) => Number(task.slice(2)) < (last?.first ?? 0)),
    );
    broker.finish("b");
    expect(held(broker, "a")).toBeGreaterThan(3);
    broker.giveBack("a", broker.at("a").at(-1) ?? "");
    broker.hold(1, false);
    expect(held(broker, "b")).toBe(2);
  });

  it("a job that is held at its limit gives a worker nothing to prefetch", () => {
    const broker = new Workbench();
    broker.join("a", { ...PREFETCHES, slots: 2 });
    const job = broker.submit({ count: 1_000, maxRunning: 2 });
    workFor(broker, ["a"]);
    broker.hold(job);
    broker.giveBack("a", ...(broker.asked("retract").at(-1) ?? []));
    expect(held(broker, "a")).toBe(2);
    const other = broker.submit({ priority: -1 });
    broker.slots("a", 3);
    broker.finish("a", [`${other}.0`]);
    expect(held(broker, "a")).toBe(2);
  });

  it("in a group, a lowered limit releases leased tasks that would exceed it", () => {
    const world = new ModelWorld({ shared: true });
    const broker = new Workbench({}, world);
    const other = new Workbench({}, world);
    broker.join("a", { slots: 2 });
    broker.submit();
    // It is leased for its turn at the slots of the other task.
    const job = broker.submit({ count: 5, slots: 2, maxRunning: 2 });
    other.join("b", { slots: 2 });
    other.step((out) => onJobAdded(other.state, out, broker.job(job), undefined, new Set(), other.now));
    other.step((out) => onMayLease(other.state, out, job));
    const leased = () =>
      [...world.taskRanges.values()].filter(
        ({ taskRange, epoch }) => taskRange.job === job && epoch !== undefined && taskRange.worker === undefined,
      );
    expect([held(other, "b"), leased().length]).toEqual([1, 1]);
    broker.edit(job, { maxRunning: 1 });
    expect([held(other, "b"), leased().length]).toEqual([1, 0]);
  });

  it("the rest is finished when only prefetched tasks are left", () => {
    const broker = new Workbench();
    broker.join("a", { ...PREFETCHES, slots: 2 });
    const job = broker.submit({ count: 60, maxRunning: 2 });
    for (let round = 0; round < 60 && broker.job(job).ended === undefined; round++) workFor(broker, ["a"], 1);
    expect(broker.job(job).ended?.state).toBe("succeeded");
  });

  it("holds in any history of joins, losses, results, returns and slots", () => {
    const step = fc.record({
      kind: fc.constantFrom("submit", "finish", "finish", "finish", "back", "away", "join", "slots", "hold", "pass"),
      at: fc.nat(2),
      many: fc.integer({ min: 1, max: 4 }),
    });
    let prefetched = 0;
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 120 }), (steps) => {
        const broker = new Workbench();
        for (const at of [0, 1, 2]) broker.join(`w${at}`, { ...PREFETCHES, slots: at + 1 });
        for (const { kind, at, many } of [{ kind: "submit", at: 0, many: 3 }, ...steps]) {
          const name = `w${at}`;
          const connected = [...broker.state.workers.values()].some(
            ({ profile, connected }) => profile.name === name && connected,
          );
          broker.now += 5;
          if (kind === "submit" && broker.world.jobs.size < 3) broker.submit({ count: 200, maxRunning: many + at });
          else if (kind === "hold") broker.hold(1 + at, many % 2 === 0);
          else if (kind === "pass") broker.pass(many * 10);
          else if (kind === "join" && !connected) {
            broker.held.delete(name);
            broker.join(name, { ...PREFETCHES, slots: many, session: SessionId(`${name} ${broker.now}`) });
          } else if (!connected) continue;
          else if (kind === "finish") broker.finish(name, broker.at(name).slice(0, many));
          else if (kind === "back" && held(broker, name) > 0) broker.giveBack(name, ...broker.at(name).slice(-many));
          else if (kind === "away") broker.away(name);
          else if (kind === "slots") broker.slots(name, many);
          for (const worker of broker.state.workers.values()) prefetched += worker.prefetched;
        }
      }),
      { numRuns: RUNS },
    );
    expect(prefetched).toBeGreaterThan(0);
  });
});
