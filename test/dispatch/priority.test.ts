import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("priority", () => {
  it("the higher goes first, whatever came first", () => {
    const broker = new Workbench();
    const low = broker.submit({ count: 2 });
    const high = broker.submit({ count: 2, priority: 5 });
    broker.join("a", { slots: 3 });
    expect(broker.at("a")).toEqual([`${high}.0`, `${high}.1`, `${low}.0`]);
  });

  it("equal priority goes by age where nothing else decides", () => {
    const broker = new Workbench();
    for (let i = 0; i < 3; i++) broker.submit();
    broker.join("a", { slots: 3 });
    expect(broker.at("a")).toEqual(["1.0", "2.0", "3.0"]);
  });

  it("a lower priority gets what the higher cannot use", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.submit({ count: 5, priority: 5, tags: ["nobody has"] });
    const low = broker.submit({ count: 5 });
    expect(broker.at("a")).toEqual([`${low}.0`, `${low}.1`, `${low}.2`]);
  });

  it("a lower priority in the line does not break the higher one's hand-outs into single tasks", () => {
    const broker = new Workbench();
    broker.submit({ count: 8, priority: 1 });
    broker.submit({ count: 8 });
    broker.join("a", { slots: 8 });
    expect(broker.sends).toHaveLength(1);
    expect(broker.at("a")).toHaveLength(8);
  });

  it("maxRunning leaves the rest of the room to others, and a slot that frees goes to the job again", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    const capped = broker.submit({ count: 5, priority: 1, maxRunning: 1 });
    const other = broker.submit({ count: 5 });
    expect(broker.at("a")).toEqual([`${capped}.0`, `${other}.0`, `${other}.1`]);
    broker.finish("a", [`${capped}.0`]);
    expect(broker.at("a")).toContain(`${capped}.1`);
  });

  it("a job that may run again goes to any worker with room, not only to the one that reported", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 1, tags: ["x"] });
    const capped = broker.submit({ count: 2, maxRunning: 1 });
    broker.join("b", { slots: 1 });
    const urgent = broker.submit({ priority: 9, tags: ["x"] });
    broker.finish("a");
    expect(broker.at("a")).toEqual([`${urgent}.0`]);
    expect(broker.at("b")).toEqual([`${capped}.1`]);
  });
});
