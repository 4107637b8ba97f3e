import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ALL } from "../../src/model/recipe.js";
import { Workbench } from "./workbench.js";

/** Two workers of four slots, full of narrow tasks; many more wait. */
function busy(narrow = {}): { broker: Workbench; narrow: number } {
  const broker = new Workbench();
  broker.join("a", { slots: 4 });
  broker.join("b", { slots: 4 });
  return { broker, narrow: broker.submit({ count: 200, ...narrow }) };
}

const finishOne = (broker: Workbench, name: string): void => void broker.finish(name, broker.at(name).slice(0, 1));

describe("a wide task", () => {
  it("gets through: one worker takes nothing of equal priority until it fits", () => {
    const { broker } = busy();
    const wide = broker.submit({ slots: 4 });
    for (let i = 0; i < 4; i++) finishOne(broker, "a");
    expect(broker.at("a")).toEqual([`${wide}.0`]);
    expect(broker.at("b")).toHaveLength(4);
  });

  it("is waited for at the worker with most free slots", () => {
    const { broker } = busy({ count: 8 });
    broker.finish("b", broker.at("b").slice(0, 2));
    broker.submit({ slots: 4, count: 2 });
    expect(broker.worker("b").reservedFor).toBeDefined();
    expect(broker.worker("a").reservedFor).toBeUndefined();
  });

  it("that is wider than every worker reserves nothing", () => {
    const { broker, narrow } = busy();
    const wide = broker.submit({ slots: 5 });
    for (let i = 0; i < 20; i++) finishOne(broker, "a");
    expect(broker.at("a")).toHaveLength(4);
    expect(broker.at("a").every((task) => task.startsWith(`${narrow}.`))).toBe(true);
    expect(broker.why(`${wide}.0`)).toBe("it needs 5 slots, the most that a worker has is 4");
  });

  it("leaves the kept worker to higher priorities and to requests", () => {
    const { broker } = busy();
    broker.join("a", { slots: 4, services: ["echo"] }, heldAt(broker, "a"));
    broker.submit({ slots: 4 });
    finishOne(broker, "a");
    expect(broker.at("a")).toHaveLength(3);
    broker.request("echo");
    expect(broker.called).toEqual(["a 1"]);
    finishOne(broker, "a");
    const urgent = broker.submit({ priority: 1 });
    expect(broker.at("a")).toContain(`${urgent}.0`);
  });

  for (const [how, end] of [
    ["held", (broker: Workbench, wide: number) => broker.hold(wide)],
    ["cancelled", (broker: Workbench, wide: number) => broker.cancel(wide)],
  ] as const) {
    it(`frees the kept worker at once when its job is ${how}`, () => {
      const { broker } = busy();
      const wide = broker.submit({ slots: 4 });
      finishOne(broker, "a");
      finishOne(broker, "a");
      expect(broker.at("a")).toHaveLength(2);
      end(broker, wide);
      expect(broker.at("a")).toHaveLength(4);
    });
  }

  it("frees the kept worker when it is placed on another", () => {
    const { broker } = busy();
    const wide = broker.submit({ slots: 4 });
    finishOne(broker, "a");
    expect(broker.at("a")).toHaveLength(3);
    broker.join("c", { slots: 4 });
    expect(broker.at("c")).toEqual([`${wide}.0`]);
    expect(broker.at("a")).toHaveLength(4);
  });

  it("looks for another worker when the kept one leaves or is drained", () => {
    for (const go of ["leave", "drain", "away"] as const) {
      const { broker } = busy();
      const wide = broker.submit({ slots: 4 });
      finishOne(broker, "a");
      expect(broker.worker("a").reservedFor).toBeDefined();
      broker[go]("a");
      for (let i = 0; i < 4; i++) finishOne(broker, "b");
      expect(broker.at("b")).toEqual([`${wide}.0`]);
    }
  });

  it("does not keep its worker at a priority that no longer waits", () => {
    const { broker } = busy();
    const high = broker.submit({ slots: 4, priority: 9 });
    broker.submit({ slots: 4 });
    finishOne(broker, "a");
    const middle = broker.submit({ count: 3, priority: 5 });
    expect(broker.at("a")).toHaveLength(3);
    broker.hold(high);
    expect(broker.at("a")).toContain(`${middle}.0`);
  });

  it("keeps only what it needs: narrow tasks use the other slots while it waits for a device", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4, room: { gpu: 2 } });
    const long = broker.submit({ needs: { gpu: 2 } });
    const wide = broker.submit({ needs: { gpu: 1 } });
    const narrow = broker.submit({ count: 10 });
    expect(broker.at("a")).toEqual([`${long}.0`, `${narrow}.0`, `${narrow}.1`, `${narrow}.2`]);
    finishOne(broker, "a");
    expect(broker.at("a")).toContain(`${wide}.0`);
  });

  it("is passed by narrow tasks up to the slots beyond its own, also when many are ready at once", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    const long = broker.submit({ count: 4 });
    const wide = broker.submit({ slots: 3 });
    const narrow = broker.submit({ count: 10 });
    broker.finish("a", [`${long}.0`, `${long}.1`]);
    expect(broker.at("a")).toEqual([`${long}.2`, `${long}.3`, `${narrow}.0`]);
    broker.finish("a", [`${long}.2`, `${long}.3`]);
    expect(broker.at("a")).toEqual([`${narrow}.0`, `${wide}.0`]);
  });

  it("is passed by a task that fits beside it while an earlier one does not", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    const long = broker.submit({ count: 4 });
    broker.submit({ slots: 3 });
    broker.submit({ slots: 2 });
    const narrow = broker.submit();
    broker.finish("a", [`${long}.0`, `${long}.1`]);
    expect(broker.at("a")).toEqual([`${long}.2`, `${long}.3`, `${narrow}.0`]);
  });

  it("counts requests and higher priorities that came after it against those that may pass", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4, services: ["echo"] });
    const long = broker.submit({ count: 4 });
    const wide = broker.submit({ slots: 2 });
    const narrow = broker.submit({ count: 10 });
    broker.request("echo");
    broker.submit({ priority: 1 });
    broker.finish("a", [`${long}.0`, `${long}.1`]);
    expect(broker.at("a").filter((task) => task.startsWith(`${narrow}.`))).toEqual([]);
    broker.reply("a", 1);
    expect(broker.at("a")).toContain(`${narrow}.0`);
    broker.finish("a", [`${long}.2`, `${long}.3`]);
    expect(broker.at("a")).toContain(`${wide}.0`);
  });

  it("starts at the latest when all that was there before it has ended, whatever passes it", () => {
    const amount = fc.integer({ min: 0, max: 3 });
    const wishOf = (min: number) => fc.record({ slots: fc.integer({ min, max: 4 }), gpu: amount, mem: amount });
    const wish = wishOf(1);
    fc.assert(
      fc.property(fc.array(wish, { minLength: 1, maxLength: 6 }), wishOf(2), fc.array(wish), (before, wide, after) => {
        const broker = new Workbench();
        broker.join("a", { slots: 4, room: { gpu: 3, mem: 3 } });
        for (const { slots, ...needs } of before) broker.submit({ slots, needs });
        // What waits before it may go before it.
        for (let id = 1; id <= before.length; id++) if (!broker.at("a").includes(`${id}.0`)) broker.cancel(id);
        const there = broker.at("a");
        const { slots, ...needs } = wide;
        const waits = broker.submit({ slots, needs });
        for (const { slots, ...needs } of after) broker.submit({ slots, needs, count: 3 });
        for (const task of there) broker.finish("a", [task]);
        expect(broker.at("a")).toContain(`${waits}.0`);
      }),
      { numRuns: 300 },
    );
  });

  it("is not prefetched: there nothing would keep room for it", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, canPrefetch: true });
    const wide = broker.submit({ count: 50, slots: 2 });
    for (let i = 0; i < 10; i++) {
      broker.now += 5;
      finishOne(broker, "a");
    }
    expect(broker.worker("a").prefetched).toBe(0);
    expect(broker.at("a")).toEqual([`${wide}.10`]);
  });

  it("says in explain who is kept for it, and for whom a worker is kept", () => {
    const { broker, narrow } = busy();
    const wide = broker.submit({ slots: 4 });
    finishOne(broker, "a");
    expect(broker.why(`${wide}.0`)).toBe("it needs more than any worker has free; a is reserved for it");
    expect(broker.why(`${narrow}.100`)).toBe("a has free slots, but is reserved for a wider task");
  });
});

function heldAt(broker: Workbench, name: string) {
  return broker.sends.flatMap((send) =>
    send.kind === "tasks" && send.worker === name
      ? [{ job: send.job, first: send.first, last: send.last, attempt: send.attempt, state: "running" as const }]
      : [],
  );
}

describe("a task that needs all of a resource", () => {
  it("waits until nothing else uses it, and keeps others from it", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4, room: { gpu: 2 } });
    broker.join("b", { slots: 4 });
    const part = broker.submit({ needs: { gpu: 0.5 } });
    const whole = broker.submit({ count: 2, needs: { gpu: ALL } });
    const plain = broker.submit({ count: 2 });
    expect(broker.at("a")).toContain(`${part}.0`);
    expect(broker.at("a")).not.toContain(`${whole}.0`);
    broker.finish("a", [`${part}.0`]);
    expect(broker.at("a")).toContain(`${whole}.0`);
    expect(broker.at("a")).not.toContain(`${whole}.1`);
    broker.finish("a", [`${whole}.0`]);
    expect(broker.at("a")).toContain(`${whole}.1`);
    expect([...broker.at("a"), ...broker.at("b")]).toContain(`${plain}.1`);
    expect(broker.worker("a").free.gpu).toBe(0);
  });
});
