import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("an edited job", () => {
  it("goes before others with its new priority", () => {
    const broker = new Workbench();
    const first = broker.submit({ count: 2 });
    const second = broker.submit({ count: 2 });
    broker.edit(second, { priority: 5 });
    broker.join("a");
    expect(broker.at("a")).toEqual([`${second}.0`]);
    broker.edit(first, { priority: 6 });
    broker.finish("a");
    expect(broker.at("a")).toEqual([`${first}.0`]);
  });

  it("runs no more than a lowered limit allows, as soon as what runs has ended", () => {
    const broker = new Workbench();
    for (const name of ["a", "b"]) broker.join(name, { slots: 4 });
    const job = broker.submit({ count: 40, maxRunning: 8 });
    broker.edit(job, { maxRunning: 2 });
    expect(broker.why(`${job}.20`)).toContain("may run 2 tasks at once");
    for (let round = 0; round < 10; round++) {
      broker.now += 5_000;
      for (const name of ["a", "b"]) broker.finish(name, broker.at(name).slice(0, 1));
    }
    expect(broker.at("a").length + broker.at("b").length).toBe(2);
    broker.edit(job, { maxRunning: 5 });
    expect(broker.at("a").length + broker.at("b").length).toBe(5);
  });

  it("has a limit that it did not have before, and gets its prefetched tasks back", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, canPrefetch: true });
    const job = broker.submit({ count: 1_000 });
    for (let round = 0; round < 20; round++) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 1));
    }
    expect(broker.worker("a").prefetched).toBeGreaterThan(2);
    broker.edit(job, { maxRunning: 1 });
    const back = broker.asked("retract").at(-1) ?? [];
    expect(back.length).toBeGreaterThan(2);
    broker.giveBack("a", ...back);
    expect(broker.at("a")).toHaveLength(2);
    broker.finish("a", broker.at("a").slice(0, 1));
    broker.finish("a", broker.at("a").slice(0, 1));
    expect(broker.sends.at(-1)).toMatchObject({ kind: "tasks", atOnce: 1 });
  });

  it("is left to workers that have time for its new limit", () => {
    const broker = new Workbench();
    const job = broker.submit();
    broker.edit(job, { timeLimitMs: 120_000 });
    broker.join("short", { leavesAt: broker.now + 60_000 });
    expect(broker.at("short")).toEqual([]);
    broker.edit(job, { timeLimitMs: 30_000 });
    expect(broker.at("short")).toEqual([`${job}.0`]);
  });
});

describe("an open job", () => {
  it("hands out what is added to it, and ends when it is closed", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    const job = broker.submit({ count: 0, open: true });
    const next = broker.submit({ after: [{ job }] });
    broker.append(job, 2);
    expect(broker.at("a")).toEqual([`${job}.0`, `${job}.1`]);
    broker.finish("a");
    expect(broker.job(job).ended).toBeUndefined();
    broker.append(job, 1);
    expect(broker.at("a")).toEqual([`${job}.2`]);
    broker.finish("a");
    broker.edit(job, {}, { close: true });
    expect(broker.job(job).ended?.state).toBe("succeeded");
    expect(broker.at("a")).toEqual([`${next}.0`]);
  });

  it("is closed by a failure of what it waits for", () => {
    const broker = new Workbench();
    const first = broker.submit();
    const job = broker.submit({ count: 0, open: true, after: [{ job: first }] });
    broker.join("a");
    broker.fail("a", `${first}.0`);
    expect(broker.job(job).ended?.state).toBe("succeeded");
    const third = broker.submit();
    broker.fail("a", `${third}.0`);
  });
});
