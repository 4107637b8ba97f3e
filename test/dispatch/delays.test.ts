import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("a delayed job", () => {
  it("starts when its delay is over, and not before", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 9 });
    broker.submit({ count: 3, delayMs: 500 });
    broker.pass(499);
    expect(broker.at("a")).toEqual([]);
    expect(broker.state.jobs.size).toBe(0);
    broker.pass(1);
    expect(broker.at("a")).toEqual(["1.0", "1.1", "1.2"]);
  });

  it("with a delay neither starts early nor waits longer when the clock is set", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ delayMs: 500 });
    broker.setClock(3_600_000);
    expect(broker.at("a")).toEqual([]);
    broker.setClock(-3_600_000);
    broker.pass(500);
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("with a named time follows the clock", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ at: broker.now + 500 });
    broker.setClock(-200);
    broker.pass(600);
    expect(broker.at("a")).toEqual([]);
    broker.setClock(-100);
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("that waits for another job needs both, and is cancelled with it", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({});
    broker.submit({ delayMs: 500, after: [{ job: 1 }] });
    broker.submit({ delayMs: 500, after: [{ job: 1 }] });
    expect(broker.why("2.0")).toContain("waits for job 1");
    broker.finish("a");
    expect(broker.why("2.0")).toMatch(/delayed until .*Z, in 500ms/);
    expect(broker.at("a")).toEqual([]);
    broker.pass(500);
    expect(broker.at("a")).toEqual(["2.0"]);
  });

  it("that others wait for lets them go on when it has ended", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ delayMs: 500 });
    broker.pass(500);
    broker.submit({ after: [{ job: 1 }] });
    broker.finish("a");
    expect(broker.at("a")).toEqual(["2.0"]);
  });

  it("that is held when its time comes waits for its release", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ delayMs: 500, held: true });
    broker.pass(500);
    expect(broker.at("a")).toEqual([]);
    broker.hold(1, false);
    expect(broker.at("a")).toEqual(["1.0"]);
  });
});
