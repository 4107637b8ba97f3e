import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

const KNOWN = { canPrefetch: true, slots: 2 };

/** A worker that has done enough tasks of 5 ms for its rate to be known. */
function warmedUp(count = 1_000): { broker: Workbench; job: number } {
  const broker = new Workbench();
  broker.join("a", KNOWN);
  const job = broker.submit({ count });
  for (let i = 0; i < 20; i++) {
    broker.now += 5;
    broker.finish("a", broker.at("a").slice(0, 2));
  }
  return { broker, job };
}

/** What a worker was last asked to give back is given back, as it would. */
function obey(broker: Workbench, name: string): string[] {
  const asked = broker.asked("retract").at(-1) ?? [];
  broker.giveBack(name, ...asked);
  return asked;
}

describe("prefetched tasks", () => {
  it("is about 50 ms of the worker's measured rate", () => {
    const { broker } = warmedUp();
    // Two tasks every 5 ms are 20 in 50 ms.
    expect(broker.worker("a").prefetched).toBeGreaterThanOrEqual(10);
    expect(broker.worker("a").prefetched).toBeLessThanOrEqual(25);
    expect(broker.at("a")).toHaveLength(2 + broker.worker("a").prefetched);
  });

  it("lasts for two round trips at a worker that is far away", () => {
    const prefetched = (roundTripMs: number): number => {
      const broker = new Workbench();
      broker.join("a", { canPrefetch: true, slots: 1 });
      broker.submit({ count: 1_000 });
      broker.now += roundTripMs + 10;
      broker.finish("a", broker.at("a"), { started: broker.now - 10 });
      return broker.worker("a").prefetched;
    };
    // Tasks of 10 ms: five in 50 ms, and forty in two round trips of 200 ms.
    expect(prefetched(2)).toBe(5);
    expect(prefetched(200)).toBe(40);
  });

  it("is not given before a task of the job has ended, nor for tasks over a second", () => {
    const broker = new Workbench();
    broker.join("a", KNOWN);
    broker.submit({ count: 100 });
    expect(broker.at("a")).toHaveLength(2);
    for (let i = 0; i < 5; i++) {
      broker.now += 1_500;
      broker.finish("a", broker.at("a").slice(0, 1), { started: broker.now - 1_500 });
      expect(broker.at("a")).toHaveLength(2);
    }
  });

  it("is given of new jobs where tasks of the same service are known to be short", () => {
    const prefetchedOf = (service: string | undefined, tookMs: number): number => {
      const broker = new Workbench();
      broker.join("a", { ...KNOWN, services: ["resize"] });
      const wish = service === undefined ? {} : { service };
      broker.submit(wish);
      broker.now += tookMs;
      broker.finish("a", broker.at("a"), { started: broker.now - tookMs });
      for (let i = 0; i < 100; i++) broker.submit(wish);
      broker.finish("a", broker.at("a").slice(0, 1), { started: broker.now - tookMs });
      return broker.worker("a").prefetched;
    };
    expect(prefetchedOf("resize", 1)).toBeGreaterThan(30);
    expect(prefetchedOf("resize", 1_500)).toBe(0);
    // Commands of different jobs have nothing in common.
    expect(prefetchedOf(undefined, 1)).toBe(0);
  });

  it("is not given to a worker whose protocol cannot hold any", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 100 });
    for (let i = 0; i < 10; i++) {
      broker.now += 5;
      broker.finish("a");
    }
    expect(broker.worker("a").prefetched).toBe(0);
  });

  it("moves up into the room that frees, and the room is not given away twice", () => {
    const { broker } = warmedUp();
    broker.submit({ count: 1 });
    const before = broker.worker("a").prefetched;
    broker.finish("a", broker.at("a").slice(0, 1));
    expect(broker.worker("a").free.slots).toBe(0);
    expect(broker.worker("a").prefetched).toBeGreaterThanOrEqual(before - 1);
  });

  it("is asked back for an idle worker, which then gets it, and not the one that gave it", () => {
    const { broker } = warmedUp(42 + 22);
    const stocked = broker.worker("a").prefetched;
    expect(stocked).toBeGreaterThanOrEqual(10);
    while (broker.state.jobs.get(1 as never)?.ready !== 0) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 2));
    }
    broker.join("b", { ...KNOWN, slots: 4 });
    const asked = obey(broker, "a");
    expect(asked.length).toBeGreaterThan(4);
    expect(broker.at("b")).toHaveLength(4);
    expect(broker.at("b").every((task) => asked.includes(task))).toBe(true);
  });

  it("makes way for a higher priority", () => {
    const { broker } = warmedUp();
    const urgent = broker.submit({ count: 30, priority: 1 });
    obey(broker, "a");
    expect(broker.worker("a").prefetched).toBe(0);
    broker.finish("a", broker.at("a").slice(0, 2));
    expect(broker.at("a")).toEqual(expect.arrayContaining([`${urgent}.0`, `${urgent}.1`]));
  });

  it("comes back when the job is held, in one message, and stays back", () => {
    const { broker, job } = warmedUp();
    const messages = broker.asked("retract").length;
    broker.hold(job);
    expect(broker.asked("retract")).toHaveLength(messages + 1);
    obey(broker, "a");
    expect(broker.at("a")).toHaveLength(2);
    broker.hold(job, false);
    broker.finish("a", broker.at("a").slice(0, 2));
    expect(broker.at("a").length).toBeGreaterThan(2);
  });

  it("is retracted again after an answer with none of it", () => {
    const { broker, job } = warmedUp();
    broker.hold(job);
    broker.giveBack("a");
    broker.hold(job, false);
    const messages = broker.asked("retract").length;
    broker.hold(job);
    expect(broker.asked("retract")).toHaveLength(messages + 1);
  });

  it("comes back when the worker is drained, and goes to another", () => {
    const { broker } = warmedUp();
    broker.drain("a");
    const asked = obey(broker, "a");
    broker.join("b", { slots: 2 });
    expect(asked).toEqual(expect.arrayContaining(broker.at("b")));
  });

  it("is told to stop when it is cancelled, and is then over", () => {
    const { broker, job } = warmedUp();
    broker.cancel(job);
    const asked = broker.asked("cancel").at(-1) ?? [];
    expect(asked.sort()).toEqual(broker.at("a").sort());
    broker.giveBack("a", ...asked.slice(2));
    broker.finish("a", asked.slice(0, 2), { code: 143 });
    expect(broker.job(job).ended?.state).toBe("cancelled");
  });

  it("lets a waiting request have the next slot that frees", () => {
    const broker = new Workbench();
    broker.join("a", { ...KNOWN, services: ["echo"] });
    broker.submit({ count: 1_000 });
    for (let i = 0; i < 20; i++) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 2));
    }
    broker.request("echo");
    expect(broker.called).toEqual([]);
    broker.finish("a", broker.at("a").slice(0, 1));
    expect(broker.called).toEqual(["a 1"]);
  });

  it("is not upset by times that are no times", () => {
    const broker = new Workbench();
    broker.join("a", KNOWN);
    broker.submit({ count: 100 });
    for (const ended of [Number.NaN, Number.POSITIVE_INFINITY, -1e300, 0]) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 1), { ended });
    }
    expect(broker.at("a").length).toBeGreaterThanOrEqual(2);
  });
});
