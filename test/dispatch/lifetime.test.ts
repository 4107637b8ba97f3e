import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("a worker that will end", () => {
  it("takes no task whose time limit reaches beyond its end, and says so", () => {
    const broker = new Workbench();
    broker.join("short", { slots: 2, leavesAt: broker.now + 60_000 });
    const long = broker.submit({ timeLimitMs: 120_000 });
    expect(broker.at("short")).toEqual([]);
    expect(broker.why(`${long}.0`)).toContain("ends before the time limit");
  });

  it("takes others of the same kind that fit, or that have no limit", () => {
    const broker = new Workbench();
    broker.join("short", { slots: 3, leavesAt: broker.now + 60_000 });
    broker.submit({ timeLimitMs: 120_000 });
    const fits = broker.submit({ timeLimitMs: 30_000 });
    const open = broker.submit({});
    expect(broker.at("short").sort()).toEqual([`${fits}.0`, `${open}.0`]);
  });

  it("takes no task whose time request it does not meet; the request goes before the time limit", () => {
    const broker = new Workbench();
    broker.join("short", { slots: 2, leavesAt: broker.now + 60_000 });
    const wants = broker.submit({ timeRequestMs: 61_000, timeLimitMs: 1_000 });
    const modest = broker.submit({ timeRequestMs: 59_000, timeLimitMs: 600_000 });
    expect(broker.at("short")).toEqual([`${modest}.0`]);
    expect(broker.why(`${wants}.0`)).toContain("ends before the time request");
  });

  it("takes a task that may run until its very end", () => {
    const broker = new Workbench();
    broker.join("short", { leavesAt: broker.now + 60_000 });
    const fits = broker.submit({ timeLimitMs: 60_000 });
    expect(broker.at("short")).toEqual([`${fits}.0`]);
  });

  it("leaves them to a worker that stays", () => {
    const broker = new Workbench();
    broker.join("short", { slots: 2, leavesAt: broker.now + 60_000 });
    broker.join("stays", { slots: 1 });
    const long = broker.submit({ timeLimitMs: 120_000, count: 2 });
    expect(broker.at("stays")).toEqual([`${long}.0`]);
    broker.finish("stays", broker.at("stays"));
    expect(broker.at("stays")).toEqual([`${long}.1`]);
    expect(broker.at("short")).toEqual([]);
  });
});
