import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("explain", () => {
  it("names the first demand that no worker meets", () => {
    const broker = new Workbench();
    broker.submit({ pool: "blue", tags: ["fast"], service: "echo", slots: 3, needs: { gpu: 2 } });
    const why = (): string => broker.why("1.0");
    expect(why()).toBe("no worker is connected");
    broker.join("a", { slots: 8 });
    expect(why()).toBe("no worker is in pool blue");
    broker.join("b", { slots: 1, pool: "blue" });
    expect(why()).toBe("no worker offers service echo");
    broker.join("b", { slots: 1, pool: "blue", services: ["echo"] });
    expect(why()).toBe("no worker has the tags fast");
    broker.join("b", { slots: 1, pool: "blue", services: ["echo"], tags: ["fast"] });
    expect(why()).toBe("it needs 2 gpu, the most that a worker has is 0");
    broker.join("b", { slots: 1, room: { gpu: 2 }, pool: "blue", services: ["echo"], tags: ["fast"] });
    expect(why()).toBe("it needs 3 slots, the most that a worker has is 1");
    broker.join("c", { slots: 3, pool: "blue", services: ["echo"], tags: ["fast"] });
    expect(why()).toBe("no single worker has all that it needs");
    broker.join("d", { slots: 3, room: { gpu: 2 }, pool: "blue", services: ["echo"], tags: ["fast"] });
    expect(why()).toBe("it is prefetched by d");
    broker.start("d", "1.0");
    expect(why()).toBe("it runs on d");
  });

  it("tells of hold, backoff, limits, cancel and a halted broker", () => {
    const broker = new Workbench({ retryBackoffMs: 2_500 });
    broker.join("a");
    broker.submit({ count: 5, retries: 1, maxRunning: 1 });
    expect(broker.why("1.3")).toBe("its job may run 1 task at once, and does");
    broker.fail("a", "1.0");
    expect(broker.why("1.0")).toBe("it failed once; the next try is in 2.5s");
    broker.cancel(1, 1, 2);
    expect(broker.why("1.1")).toBe("it was cancelled; worker a has not confirmed its end yet");
    expect(broker.why("1.2")).toBe("it was cancelled");
    broker.hold(1);
    expect(broker.why("1.3")).toBe("its job is held");
    broker.submit({ count: 2 });
    broker.halt();
    expect(broker.why("2.0")).toBe("the broker assigns nothing: it is drained");
  });

  it("tells of workers that are busy, away, draining, and of tasks that do not exist", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ count: 3 });
    expect(broker.why("1.2")).toBe("1 worker can take it, and is busy; 2 tasks of its job are ready");
    broker.drain("a");
    expect(broker.why("1.2")).toBe("a could take it, but is draining");
    broker.away("a");
    expect(broker.why("1.0")).toBe("worker a has it and is away; it is kept for it during the grace period");
    expect(broker.why("1.7")).toBe("job 1 has tasks 1 to 3");
    expect(broker.why("9.0")).toBe("its job has ended or does not exist");
  });

  it("names the workers that could take it and why they do not, beside others that could not", () => {
    const broker = new Workbench();
    broker.join("small", { slots: 1 });
    broker.join("big", { slots: 4 });
    broker.join("bigger", { slots: 8, paused: "less than 2 MiB of memory are available" });
    broker.drain("big");
    broker.submit({ slots: 4 });
    expect(broker.why("1.0")).toBe(
      "big could take it, but is draining; bigger could take it, but takes no tasks: less than 2 MiB of memory are available",
    );
    for (const name of ["c", "d"]) broker.join(name, { slots: 4, paused: "x" });
    expect(broker.why("1.0")).toMatch(/; c could take it, but takes no tasks: x; 1 more could take it, but does not$/);
  });

  it("tells why a worker takes less than it has", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 1, remark: "leaves one of its slots alone" });
    broker.submit({ count: 2 });
    expect(broker.why("1.1")).toMatch(/and is busy; .*; a leaves one of its slots alone$/);
    const other = new Workbench();
    other.join("a", { slots: 0, remark: "leaves its only slot alone" });
    other.submit({ count: 1 });
    expect(other.why("1.0")).toBe("it needs 1 slots, the most that a worker has is 0; a leaves its only slot alone");
  });
});
