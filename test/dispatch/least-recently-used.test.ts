import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

/** Workers in the order they were given tasks. */
const users = (broker: Workbench): string[] =>
  broker.sends.flatMap((send) => (send.kind === "tasks" ? [String(send.worker)] : []));

describe("among workers with room", () => {
  it("the one used longest ago gets the task", () => {
    const broker = new Workbench();
    for (const name of ["a", "b", "c"]) broker.join(name);
    for (let i = 0; i < 3; i++) broker.submit();
    broker.finish("b");
    broker.finish("c");
    broker.finish("a");
    for (let i = 0; i < 3; i++) broker.submit();
    expect(users(broker)).toEqual(["a", "b", "c", "a", "b", "c"]);
  });

  it("workers that were never used are taken in the order they joined, before used ones", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 9 });
    broker.submit();
    for (const name of ["b", "c", "d"]) broker.join(name);
    for (let i = 0; i < 4; i++) broker.submit();
    expect(users(broker)).toEqual(["a", "b", "c", "d", "a"]);
  });

  it("a job's tasks are spread evenly, also where maxRunning allows fewer than wait", () => {
    const broker = new Workbench();
    for (const name of ["a", "b", "c", "d"]) broker.join(name, { slots: 8 });
    broker.submit({ count: 100, maxRunning: 4 });
    expect(["a", "b", "c", "d"].map((name) => broker.at(name).length)).toEqual([1, 1, 1, 1]);
  });

  it("a request counts as a use", () => {
    const broker = new Workbench();
    for (const name of ["a", "b"]) broker.join(name, { slots: 2, services: ["echo"] });
    broker.request("echo");
    broker.submit();
    broker.request("echo");
    expect(broker.called).toEqual(["a 1", "a 2"]);
    expect(broker.at("b")).toEqual(["1.0"]);
  });

  it("one without room, or of another pool, or without a tag is passed over", () => {
    const broker = new Workbench();
    broker.join("narrow", { slots: 1 });
    broker.join("elsewhere", { slots: 4, pool: "other" });
    broker.join("plain", { slots: 4 });
    broker.join("tagged", { slots: 4, tags: ["big", "fast"] });
    broker.submit({ slots: 2, tags: ["fast"] });
    expect(users(broker)).toEqual(["tagged"]);
  });

  it("parts of a unit add up to the whole again", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 20, room: { gpu: 1 } });
    const shares = broker.submit({ count: 10, needs: { gpu: 0.1 } });
    expect(broker.at("a")).toHaveLength(10);
    for (let i = 0; i < 10; i++) broker.finish("a", [`${shares}.${i}`]);
    const whole = broker.submit({ needs: { gpu: 1 } });
    expect(broker.at("a")).toEqual([`${whole}.0`]);
    broker.finish("a");
    broker.submit({ count: 9, needs: { gpu: 0.3 } });
    expect(broker.at("a")).toHaveLength(3);
  });
});
