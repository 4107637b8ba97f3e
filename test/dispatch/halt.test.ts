import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("max-fails", () => {
  it("cancels the rest of the job once more tasks than that have failed, and says why", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    broker.submit({ count: 100, maxFails: 2 });
    broker.fail("a", "1.0", "1.1");
    expect(broker.job(1).cancels).toEqual([]);
    broker.fail("a", "1.2");
    expect(broker.job(1)).toMatchObject({ reason: "3 tasks failed, which halts the job" });
    expect(broker.asked("cancel")).toEqual([]);
    broker.finish("a");
    expect(broker.job(1)).toMatchObject({
      counters: { succeeded: 3, failed: 3, cancelled: 94 },
      ended: { state: "failed" },
    });
  });

  it("retracts prefetched tasks and cancels those that return, whatever returns them", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 1, canPrefetch: true });
    broker.join("b", { slots: 5, resumable: false });
    broker.submit({ count: 50, maxFails: 3 });
    broker.now += 5;
    broker.finish("a");
    const [running = "", ...prefetched] = broker.at("a");
    expect(prefetched).toHaveLength(3);
    broker.start("a", running);
    broker.start("b", ...broker.at("b"));
    broker.fail("b", ...broker.at("b").slice(0, 4));
    expect(broker.at("b")).toHaveLength(1);
    expect(broker.asked("cancel")).toEqual([]);
    expect(broker.asked("retract")).toEqual([prefetched]);
    const before = broker.job(1).counters.cancelled;
    broker.giveBack("a", ...prefetched);
    expect(broker.job(1).counters.cancelled).toBe(before + 3);
    broker.away("b");
    expect(broker.job(1).counters.cancelled).toBe(before + 4);
    broker.finish("a");
    expect(broker.job(1)).toMatchObject({ counters: { succeeded: 2, failed: 4, cancelled: 44 }, ended: {} });
  });

  it("a task that fails when too many have failed is not retried", () => {
    const broker = new Workbench({ retryBackoffMs: 10 });
    broker.join("a", { slots: 3 });
    broker.submit({ count: 3, retries: 1, maxFails: 0 });
    broker.fail("a", "1.0");
    broker.pass(10);
    broker.fail("a", "1.0");
    broker.fail("a", "1.1");
    broker.finish("a", ["1.2"]);
    expect(broker.job(1)).toMatchObject({ counters: { succeeded: 1, failed: 2, cancelled: 0 }, ended: {} });
  });

  it("lets tasks run that are run again although more than that have failed", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.submit({ count: 4, maxFails: 0 });
    broker.fail("a", "1.0");
    broker.fail("a", "1.1", "1.2");
    expect(broker.job(1)).toMatchObject({ counters: { failed: 3, cancelled: 1 } });
    expect(broker.job(1).ended).toBeDefined();
    broker.rerun(1, ["failed"], [{ first: 0, last: 0 }]);
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("lets what failed run again before the last of the other tasks has ended", () => {
    const broker = new Workbench();
    for (const name of ["a", "b"]) broker.join(name);
    broker.submit({ count: 4, maxFails: 0 });
    broker.fail("a", "1.0");
    expect(broker.job(1).counters).toMatchObject({ failed: 1, cancelled: 2 });
    broker.rerun(1, ["failed"], [{ first: 0, last: 0 }]);
    expect([broker.at("a"), broker.at("b")]).toEqual([["1.0"], ["1.1"]]);
  });

  it("is not overrun by what workers have prefetched", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, canPrefetch: true });
    broker.submit({ count: 1_000, maxFails: 3 });
    let failed = 0;
    while (broker.job(1).reason === undefined && failed < 100) {
      broker.now += 5;
      const two = broker.at("a").slice(0, 2);
      broker.fail("a", ...two);
      failed += two.length;
      expect(broker.at("a").length).toBeLessThanOrEqual(2 + 3);
    }
    expect(failed).toBe(4);
  });

  it("counts a task after its last retry only", () => {
    const broker = new Workbench({ retryBackoffMs: 10 });
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2, retries: 1, maxFails: 0 });
    broker.fail("a", "1.0", "1.1");
    expect(broker.job(1).cancels).toEqual([]);
    broker.pass(10);
    broker.fail("a", "1.0");
    expect(broker.job(1).reason).toBe("1 task failed, which halts the job");
  });

  it("counts tasks that reached the crash limit", () => {
    const broker = new Workbench();
    broker.submit({ count: 3, crashLimit: 1, maxFails: 0 });
    broker.join("a", { resumable: false });
    broker.start("a", "1.0");
    broker.away("a");
    expect(broker.job(1)).toMatchObject({ counters: { failed: 1, cancelled: 2 }, ended: { state: "failed" } });
  });
});

describe("a halt rule", () => {
  it("with now cancels running tasks, too", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.submit({ count: 9, halt: { on: "fail", count: 1, now: true } });
    broker.fail("a", "1.1");
    expect(broker.job(1)).toMatchObject({
      reason: "1 task failed, which halts the job",
      cancels: [{ first: 0, last: 8 }],
    });
    expect(broker.asked("cancel")).toEqual([["1.0", "1.2"]]);
    broker.finish("a");
    expect(broker.job(1)).toMatchObject({ counters: { succeeded: 0, failed: 1, cancelled: 8 }, ended: {} });
  });

  it("counts successes, or all that have ended", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 9, halt: { on: "success", count: 2 } });
    broker.fail("a", "1.0");
    broker.finish("a", ["1.1"]);
    expect(broker.job(1).cancels).toEqual([]);
    broker.finish("a", ["1.2"]);
    expect(broker.job(1).reason).toBe("2 tasks succeeded, which halts the job");
    broker.finish("a");
    expect(broker.job(1)).toMatchObject({ counters: { succeeded: 3, failed: 1, cancelled: 5 }, ended: {} });
    broker.submit({ count: 9, halt: { on: "done", count: 2 } });
    broker.fail("a", "2.0");
    broker.finish("a", ["2.1"]);
    expect(broker.job(2).reason).toBe("2 tasks ended, which halts the job");
  });

  it("is not overrun by what workers have prefetched", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 1, canPrefetch: true });
    broker.submit({ count: 1_000, halt: { on: "success", count: 4 } });
    for (let i = 0; i < 4; i++) {
      broker.now += 5;
      expect(broker.at("a").length).toBeLessThanOrEqual(4 - i);
      broker.finish("a", broker.at("a").slice(0, 1));
    }
    broker.finish("a");
    expect(broker.job(1)).toMatchObject({ counters: { succeeded: 4, cancelled: 996 }, ended: {} });
  });
});
