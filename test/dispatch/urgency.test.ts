import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

const KNOWN = { canPrefetch: true, slots: 2 };

/** A worker that has done enough tasks of 5 ms to have prefetched some. */
function warmedUp(count: number): Workbench {
  const broker = new Workbench();
  broker.join("a", KNOWN);
  broker.submit({ count });
  for (let i = 0; i < 20; i++) {
    broker.now += 5;
    broker.finish("a", broker.at("a").slice(0, 2));
  }
  return broker;
}

describe("decisions about results", () => {
  it("may wait while the worker has prefetched tasks, with what it prefetches next", () => {
    const broker = warmedUp(1_000);
    const seen: boolean[] = [];
    for (let i = 0; i < 20; i++) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 2));
      seen.push(broker.urgent);
    }
    expect(broker.worker("a").prefetched).toBeGreaterThan(0);
    expect(seen).toEqual(seen.map(() => false));
  });

  it("are urgent where tasks go into free slots", () => {
    const broker = warmedUp(1_000);
    broker.now += 5;
    broker.finish("a");
    expect(broker.urgent).toBe(true);
    const other = new Workbench();
    other.join("b", { slots: 2 });
    other.submit({ count: 10 });
    expect(other.urgent).toBe(true);
    other.finish("b", other.at("b").slice(0, 1));
    expect(other.urgent).toBe(true);
  });

  it("are urgent where the last task of a job has ended, for whoever waits for it", () => {
    const broker = new Workbench();
    broker.join("a", KNOWN);
    const single = broker.submit({ count: 1 });
    broker.submit({ count: 1_000 });
    for (let i = 0; i < 20; i++) {
      broker.now += 5;
      broker.finish(
        "a",
        broker
          .at("a")
          .filter((task) => !task.startsWith(`${single}.`))
          .slice(0, 1),
      );
    }
    expect([broker.worker("a").prefetched > 0, broker.urgent]).toEqual([true, false]);
    broker.now += 5;
    broker.finish("a", [`${single}.0`]);
    expect(broker.urgent).toBe(true);
  });

  it("are urgent where tasks are retracted for an idle worker", () => {
    const broker = warmedUp(45);
    broker.join("idle", KNOWN);
    expect([broker.urgent, broker.asked("retract").length]).toEqual([true, 1]);
  });
});
