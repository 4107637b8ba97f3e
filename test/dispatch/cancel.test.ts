import { describe, expect, it } from "vitest";
import { Decisions, onCancel, onJobRefused } from "../../src/dispatch/index.js";
import { JobId } from "../../src/model/ids.js";
import { Workbench } from "./workbench.js";

describe("cancel", () => {
  it("ends what waits at once and what runs when its worker says so, whatever the worker says, code kept", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.submit({ count: 10, retries: 5 });
    broker.cancel(1);
    expect(broker.job(1).counters).toEqual({ succeeded: 0, failed: 0, cancelled: 7 });
    expect(broker.asked("cancel")).toEqual([["1.0", "1.1", "1.2"]]);
    expect(broker.worker("a").free.slots).toBe(0);
    broker.finish("a", ["1.0"], { code: 0 });
    broker.finish("a", ["1.1"], { code: 7 });
    expect(broker.result("1.0")).toMatchObject({ state: "cancelled", code: 0 });
    expect(broker.result("1.1")).toMatchObject({ state: "cancelled", code: 7 });
    broker.giveBack("a", "1.2");
    expect(broker.job(1)).toMatchObject({ counters: { cancelled: 10 }, ended: { state: "cancelled" } });
  });

  it("by the store, which refused the job, frees the slots of its tasks for others at once", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    const refused = broker.submit({ count: 2 });
    const other = broker.submit({ count: 2 });
    broker.held.clear();
    broker.step((out) => onJobRefused(broker.state, out, refused, broker.now));
    expect(broker.at("a")).toEqual([`${other}.0`, `${other}.1`]);
  });

  it("of some tasks leaves the others", () => {
    const broker = new Workbench();
    broker.submit({ count: 10 });
    broker.cancel(1, 2, 4);
    broker.cancel(1, 7, 7);
    broker.join("a", { slots: 10 });
    expect(broker.at("a")).toEqual(["1.0", "1.1", "1.5", "1.6", "1.8", "1.9"]);
    broker.finish("a");
    expect(broker.job(1)).toMatchObject({ counters: { succeeded: 6, cancelled: 4 }, ended: { state: "cancelled" } });
  });

  it("reaches tasks in backoff, and only those", () => {
    const broker = new Workbench({ retryBackoffMs: 100 });
    broker.join("a", { slots: 3 });
    broker.submit({ count: 3, retries: 1 });
    broker.fail("a", "1.0", "1.1", "1.2");
    broker.cancel(1, 1, 1);
    broker.pass(100);
    expect(broker.at("a").sort()).toEqual(["1.0", "1.2"]);
  });

  it("is told again to a worker that comes back with the task", () => {
    const broker = new Workbench();
    broker.join("a");
    const job = broker.submit();
    broker.away("a");
    broker.cancel(job);
    expect(broker.asked("cancel")).toEqual([]);
    broker.join("a", {}, [{ job, first: 0, last: 0, attempt: 1, state: "running" }]);
    expect(broker.asked("cancel")).toEqual([["1.0"]]);
  });

  it("ends tasks whose worker is lost, without counting a crash", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, resumable: false });
    broker.submit({ count: 2, crashLimit: 1 });
    broker.start("a", "1.0");
    broker.cancel(1);
    broker.away("a");
    expect(broker.job(1)).toMatchObject({ counters: { failed: 0, cancelled: 2 }, ended: { state: "cancelled" } });
  });

  it("reaches tasks that are granted only later", () => {
    const broker = new Workbench({ maxLeaseTasks: 4 });
    broker.submit({ count: 40 });
    broker.cancel(1, 2, 37);
    broker.join("a", { slots: 40 });
    expect(broker.at("a")).toEqual(["1.0", "1.1", "1.38", "1.39"]);
    broker.finish("a");
    expect(broker.job(1).counters).toEqual({ succeeded: 4, failed: 0, cancelled: 36 });
  });

  it("of tasks that do not exist changes nothing, and does not confuse the count of failures", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ count: 2, maxFails: 0 });
    broker.cancel(1, 2, 9);
    expect(broker.state.jobs.get(JobId(1))?.cancels).toEqual([]);
    broker.fail("a", "1.0");
    broker.finish("a", ["1.1"], { code: 143 });
    expect(broker.job(1)).toMatchObject({ counters: { failed: 1, cancelled: 1 }, ended: { state: "failed" } });
  });

  it("of 150,000 tasks that wait one by one is no trouble", () => {
    const broker = new Workbench({ maxLeaseTasks: 300_000 });
    broker.submit({ count: 300_000, held: true });
    const { state } = broker;
    const job = state.jobs.get(JobId(1));
    const odd = Array.from({ length: 150_000 }, (_, i) => ({ first: 2 * i + 1, last: 2 * i + 1 }));
    onCancel(state, new Decisions(), JobId(1), odd);
    expect(job?.waiting.length).toBe(150_000);
    onCancel(state, new Decisions(), JobId(1), [{ first: 0, last: 149_999 }]);
    expect(job?.ready).toBe(75_000);
  });
});
