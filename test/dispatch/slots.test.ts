import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("the slots of the moment", () => {
  it("are filled when there are more, and what runs beyond fewer comes to its end", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 0 });
    broker.submit({ count: 5 });
    expect(broker.at("a")).toEqual([]);
    broker.slots("a", 2);
    expect(broker.at("a")).toEqual(["1.0", "1.1"]);
    broker.slots("a", 1);
    broker.finish("a", ["1.0"]);
    expect(broker.at("a")).toEqual(["1.1"]);
    broker.finish("a", ["1.1"]);
    expect(broker.at("a")).toEqual(["1.2"]);
  });

  it("do not decide what a worker can run: at zero it is busy, not incapable", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.slots("a", 0);
    broker.submit({ slots: 3 });
    expect(broker.why("1.0")).toMatch(/reserved for it|1 worker can take it/);
    broker.submit({ slots: 4 });
    expect(broker.why("2.0")).toMatch("it needs 4 slots, the most that a worker has is 3");
    broker.slots("a", 3);
    expect(broker.at("a")).toEqual(["1.0"]);
    broker.finish("a");
    broker.slots("a", 4);
    expect(broker.at("a")).toEqual(["2.0"]);
  });

  it("take a request at once when there are more", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 0, services: ["echo"] });
    const request = broker.request("echo");
    expect(broker.calls).toEqual([]);
    broker.slots("a", 1);
    expect(broker.calls).toEqual([{ kind: "call", worker: "a", request }]);
  });

  it("that are fewer than a wide task needs are not kept for it", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.submit({});
    broker.submit({ slots: 3 });
    broker.submit({ count: 2 });
    expect(broker.at("a")).toEqual(["1.0"]);
    expect(broker.why("2.0")).toContain("a is reserved for it");
    broker.slots("a", 2);
    expect(broker.at("a")).toEqual(["1.0", "3.0"]);
    broker.slots("a", 3);
    broker.finish("a");
    expect(broker.at("a")).toEqual(["2.0"]);
  });

  it("are those of the profile again when the worker joins or its profile changes", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 1 });
    broker.slots("a", 4);
    broker.join("a", { slots: 1 });
    broker.submit({ slots: 2 });
    expect(broker.why("1.0")).toMatch("the most that a worker has is 1");
  });

  it("change without a walk over signatures, whatever their number", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    for (let i = 0; i < 400; i++) broker.submit({ held: true, timeLimitMs: 1_000 + i });
    const job = broker.submit({ count: 100 });
    expect(broker.state.signatures.size).toBeGreaterThan(400);
    // The checks after each step of the workbench walk over them too.
    const signatures = broker.state.signatures;
    const walks: string[] = [];
    const { values } = signatures;
    signatures.values = () => {
      if (!(new Error().stack ?? "").includes("checkInvariants")) walks.push("walk");
      return values.call(signatures);
    };
    for (let i = 0; i < 20; i++) {
      broker.slots("a", 0);
      broker.finish("a");
      broker.slots("a", 2);
    }
    expect(broker.at("a").length).toBe(2);
    expect(broker.job(job).counters.succeeded).toBe(40);
    expect(walks).toEqual([]);
    broker.join("b");
    expect(walks).toEqual(["walk"]);
  });
});
