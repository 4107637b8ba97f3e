import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

const SETTINGS = { retryBackoffMs: 100, maxRetryBackoffMs: 300 };

describe("a task that fails", () => {
  it("has failed where no retries were asked for", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    broker.fail("a", "1.0");
    expect(broker.result("1.0")).toMatchObject({ state: "failed", code: 1, attempt: 1 });
    expect(broker.job(1).ended?.state).toBe("failed");
  });

  it("is tried again after a wait that doubles up to its limit, and its ends are all kept", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a");
    broker.submit({ retries: 3 });
    for (const wait of [100, 200, 300]) {
      broker.fail("a", "1.0");
      broker.pass(wait - 1);
      expect(broker.at("a")).toEqual([]);
      broker.pass(1);
      expect(broker.at("a")).toEqual(["1.0"]);
    }
    broker.fail("a", "1.0");
    expect(broker.result("1.0")).toMatchObject({ state: "failed", attempt: 4 });
    expect(broker.world.jobs.get(1 as never)?.earlier.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  });

  it("counts once, however often its end is told", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a");
    const job = broker.submit({ retries: 1 });
    const told = { job, index: 0, attempt: 1, code: 1, started: 0, ended: 5, outputBytes: 0 };
    expect(broker.report("a", [told, told])).toBe(1);
    expect(broker.report("a", [told])).toBe(1);
    broker.pass(100);
    expect(broker.at("a")).toEqual(["1.0"]);
    expect(broker.job(job).ended).toBeUndefined();
  });

  it("waits as long as its own end says, also if others of its claim are reported with it", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a", { slots: 3 });
    const job = broker.submit({ count: 3, retries: 1 });
    const end = { job, attempt: 1, code: 1, started: 0, ended: 5, outputBytes: 0 };
    broker.held.clear();
    broker.report("a", [
      { ...end, index: 0, retryAfterMs: 50 },
      { ...end, index: 1, retryAfterMs: 0 },
      { ...end, index: 2, retryAfterMs: 70 },
    ]);
    expect(broker.at("a")).toEqual(["1.1"]);
    broker.pass(50);
    expect(broker.at("a")).toEqual(["1.1", "1.0"]);
    broker.pass(20);
    expect(broker.at("a")).toEqual(["1.1", "1.0", "1.2"]);
  });

  it("that ran into its time limit or has no exit code is tried again too", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2, retries: 1 });
    broker.finish("a", ["1.0"], { code: 0, timedOut: true });
    broker.report("a", [
      { job: 1 as never, index: 1, attempt: 1, signal: "SIGSEGV", started: 0, ended: 1, outputBytes: 0 },
    ]);
    broker.pass(100);
    expect(broker.attempt("a", "1.0")).toBe(2);
    expect(broker.attempt("a", "1.1")).toBe(2);
  });

  it("is tried again at another worker, where there is one with room", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a");
    broker.submit({ retries: 2 });
    broker.join("b");
    broker.join("c");
    for (const name of ["b", "c"]) broker.submit({ tags: [], count: 1, priority: name === "b" ? 1 : 0 });
    broker.finish("b");
    broker.finish("c");
    broker.fail("a", "1.0");
    broker.pass(100);
    expect(broker.at("a")).toEqual([]);
    expect(broker.at("b")).toEqual(["1.0"]);
  });

  it("is left to others by the worker where it failed, as long as that has other tasks to do", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a");
    broker.join("b");
    broker.submit({ count: 50, retries: 1 });
    broker.fail("a", "1.0");
    broker.pass(100);
    for (let i = 0; i < 3; i++) broker.finish("a");
    expect(broker.at("a")).not.toContain("1.0");
    broker.finish("b");
    expect(broker.at("b")).toEqual(["1.0"]);
  });

  it("is tried again where it failed, if there is nobody else", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a");
    broker.submit({ retries: 1 });
    broker.fail("a", "1.0");
    broker.pass(100);
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("goes before tasks of its job that were never out, many at a time in their order", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a", { slots: 4 });
    broker.submit({ count: 100, retries: 1 });
    broker.fail("a", "1.0", "1.2", "1.3");
    broker.pass(100);
    broker.join("b", { slots: 4 });
    expect(broker.at("b").slice(0, 3)).toEqual(["1.0", "1.2", "1.3"]);
  });

  it("waits no longer than its backoff where the clock was set back and the broker started again", () => {
    const before = new Workbench(SETTINGS);
    before.pass(86_400_000);
    before.join("a");
    before.submit({ retries: 2 });
    before.fail("a", "1.0");
    before.pass(100);
    before.fail("a", "1.0");
    before.leave("a");
    const broker = before.reopened();
    broker.join("a");
    expect(broker.why("1.0")).toContain("the next try is in 200ms");
    broker.pass(199);
    expect(broker.at("a")).toEqual([]);
    broker.pass(1);
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("in a job that has ended meanwhile is not tried again", () => {
    const broker = new Workbench(SETTINGS);
    broker.join("a");
    const job = broker.submit({ retries: 1 });
    broker.fail("a", "1.0");
    broker.cancel(job);
    expect(broker.job(job).ended?.state).toBe("cancelled");
    broker.pass(1_000);
    expect(broker.at("a")).toEqual([]);
  });
});
