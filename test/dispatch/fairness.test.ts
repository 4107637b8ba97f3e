import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

/** How many tasks of a job were handed out so far. */
function handed(broker: Workbench, job: number): number {
  let count = 0;
  for (const send of broker.sends) if (send.kind === "tasks" && send.job === job) count += send.last - send.first + 1;
  return count;
}

/** Finish what runs, oldest first, one task at a time. */
function work(broker: Workbench, name: string, tasks: number): void {
  for (let i = 0; i < tasks; i++) broker.finish(name, broker.at(name).slice(0, 1));
}

describe("jobs of equal priority", () => {
  it("one of 100,000 tasks does not starve the one behind it", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    const large = broker.submit({ count: 100_000 });
    const small = broker.submit({ count: 10 });
    work(broker, "a", 24);
    expect(handed(broker, small)).toBe(10);
    expect(handed(broker, large)).toBe(18);
  });

  it("share by slots, not by tasks", () => {
    const broker = new Workbench();
    const thin = broker.submit({ count: 500 });
    const thick = broker.submit({ count: 500, slots: 4 });
    broker.join("a", { slots: 4 });
    work(broker, "a", 100);
    const slots = [handed(broker, thin), 4 * handed(broker, thick)];
    expect(Math.abs((slots[0] ?? 0) - (slots[1] ?? 0))).toBeLessThanOrEqual(8);
  });

  it("a newcomer begins level: it is owed nothing for the time before it came", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    const old = broker.submit({ count: 300 });
    work(broker, "a", 100);
    const before = handed(broker, old);
    const young = broker.submit({ count: 300 });
    work(broker, "a", 40);
    expect(handed(broker, young)).toBe(20);
    expect(handed(broker, old) - before).toBe(20);
  });

  it("a newcomer with other demands on the same workers begins level too", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, tags: ["x"] });
    const old = broker.submit({ count: 300 });
    work(broker, "a", 100);
    const before = handed(broker, old);
    const young = broker.submit({ count: 300, tags: ["x"] });
    work(broker, "a", 40);
    expect(handed(broker, young)).toBe(20);
    expect(handed(broker, old) - before).toBe(20);
  });

  it("a newcomer with demands that no work had for long begins level too", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, tags: ["x"] });
    broker.submit({ count: 1, tags: ["x"] });
    const old = broker.submit({ count: 300 });
    work(broker, "a", 101);
    const before = handed(broker, old);
    const young = broker.submit({ count: 300, tags: ["x"] });
    work(broker, "a", 40);
    expect(handed(broker, young)).toBe(20);
    expect(handed(broker, old) - before).toBe(20);
  });

  it("the same after the only worker that could serve it has left", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, tags: ["x"] });
    broker.submit({ count: 1, tags: ["x"] });
    const old = broker.submit({ count: 300 });
    work(broker, "a", 101);
    broker.leave("a");
    const before = handed(broker, old);
    const young = broker.submit({ count: 300, tags: ["x"] });
    broker.join("b", { slots: 2, tags: ["x"] });
    work(broker, "b", 40);
    expect(Math.abs(handed(broker, young) - 20)).toBeLessThanOrEqual(1);
    expect(Math.abs(handed(broker, old) - before - 20)).toBeLessThanOrEqual(1);
  });

  it("what was served in another pool does not count against a newcomer", () => {
    const broker = new Workbench();
    broker.join("busy", { slots: 8, pool: "busy" });
    broker.join("calm", { slots: 1, pool: "calm" });
    broker.submit({ count: 1_000, pool: "busy" });
    const old = broker.submit({ count: 100, pool: "calm" });
    work(broker, "busy", 400);
    const young = broker.submit({ count: 100, pool: "calm" });
    work(broker, "busy", 1);
    work(broker, "calm", 20);
    expect(handed(broker, old)).toBe(11);
    expect(handed(broker, young)).toBe(10);
  });

  it("a job that nobody could do begins level with those of the worker that comes to offer it", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 1 });
    const late = broker.submit({ count: 100, service: "late" });
    const old = broker.submit({ count: 300 });
    work(broker, "a", 100);
    const before = handed(broker, old);
    broker.join("a", { slots: 1, services: ["late"] }, [{ ...held(broker, "a"), state: "running" }]);
    work(broker, "a", 20);
    expect(handed(broker, late)).toBe(10);
    expect(handed(broker, old) - before).toBe(10);
  });

  it("tasks that came back unstarted are not charged twice", () => {
    const broker = new Workbench();
    const first = broker.submit({ count: 100 });
    const second = broker.submit({ count: 100 });
    broker.join("a", { slots: 8 });
    const back = broker.at("a").filter((task) => task.startsWith(`${first}.`));
    expect(back).toHaveLength(4);
    broker.giveBack("a", ...back);
    work(broker, "a", 40);
    expect(handed(broker, first) - 4).toBe(handed(broker, second));
  });
});

function held(broker: Workbench, name: string) {
  const [send] = broker.sends.filter((one) => one.kind === "tasks" && one.worker === name).slice(-1);
  if (send?.kind !== "tasks") throw new Error(`${name} has nothing`);
  const { job, first, last, attempt } = send;
  return { job, first, last, attempt };
}
