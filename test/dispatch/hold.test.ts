import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("hold", () => {
  it("stops hand-outs only: what runs goes on and its result counts", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 5 });
    broker.hold(1);
    broker.finish("a");
    expect(broker.at("a")).toEqual([]);
    expect(broker.job(1).counters.succeeded).toBe(2);
    broker.hold(1, false);
    expect(broker.at("a")).toEqual(["1.2", "1.3"]);
  });

  it("lets others have the room", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ count: 5, priority: 9 });
    const other = broker.submit({ count: 5 });
    broker.hold(1);
    broker.finish("a");
    expect(broker.at("a")).toEqual([`${other}.0`]);
  });

  it("can be asked for with the submission", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ held: true });
    expect(broker.at("a")).toEqual([]);
    broker.hold(1, false);
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("survives a start of the broker", () => {
    const broker = new Workbench();
    broker.submit();
    broker.hold(1);
    const after = broker.reopened();
    after.join("a");
    expect(after.at("a")).toEqual([]);
  });
});

describe("a halted broker", () => {
  it("hands out no tasks, takes results, serves requests, and goes on where it stopped", () => {
    const broker = new Workbench({ maxLeaseTasks: 2 });
    broker.join("a", { slots: 2, services: ["echo"] });
    broker.submit({ count: 6 });
    broker.halt();
    broker.finish("a");
    expect(broker.at("a")).toEqual([]);
    broker.request("echo");
    expect(broker.called).toEqual(["a 1"]);
    broker.reply("a", 1);
    broker.resume();
    expect(broker.at("a")).toHaveLength(2);
  });

  it("leases again after it, also for a job of which it had nothing left", () => {
    const broker = new Workbench({ maxLeaseTasks: 2 });
    broker.submit({ count: 6 });
    broker.halt();
    broker.cancel(1, 0, 1);
    broker.resume();
    broker.join("a", { slots: 9 });
    expect(broker.at("a")).toEqual(["1.2", "1.3", "1.4", "1.5"]);
  });
});
