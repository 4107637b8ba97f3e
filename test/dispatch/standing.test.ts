import { describe, expect, it } from "vitest";
import { afterResult } from "../../src/dispatch/standing.js";
import type { StandingRecord } from "../../src/dispatch/state.js";
import { Workbench } from "./workbench.js";

const CLEAN: StandingRecord = { results: 0, succeeded: 0, recent: "", probes: 0, standing: "good" };
const standingOf = (ends: string, from: StandingRecord = CLEAN): StandingRecord =>
  [...ends].reduce((figures, end) => afterResult(figures, end === "+"), from);

describe("standing", () => {
  it("is not judged before the tenth result", () => {
    expect(standingOf("---------")).toMatchObject({ results: 9, succeeded: 0, standing: "good" });
    expect(standingOf("----------").standing).toBe("banned");
  });

  it("is banned with fewer than six successes in ten, overall", () => {
    expect(standingOf("++++++----").standing).toBe("suspended");
    expect(standingOf("+++++-----").standing).toBe("banned");
    // A long good past outweighs a bad hour: suspended, not banned.
    expect(standingOf(`${"+".repeat(90)}----------`).standing).toBe("suspended");
  });

  it("is suspended with more than two failures in the last ten", () => {
    expect(standingOf("++++++++--").standing).toBe("good");
    expect(standingOf("+++++++---").standing).toBe("suspended");
    expect(standingOf("---+++++++").standing).toBe("suspended");
    expect(standingOf("---+++++++".padEnd(30, "+")).standing).toBe("good");
  });

  it("is lifted by two successes in a row, which clear the last ten", () => {
    const suspended = standingOf("+++++++---");
    expect(standingOf("+", suspended).standing).toBe("suspended");
    expect(standingOf("+-+", suspended).standing).toBe("suspended");
    expect(standingOf("++", suspended)).toMatchObject({ standing: "good", recent: "", results: 12, succeeded: 9 });
    expect(standingOf("++--", suspended).standing).toBe("good");
  });

  it("is not lifted by good work once banned", () => {
    expect(standingOf("+".repeat(4), standingOf("+++++-----")).standing).toBe("banned");
  });
});

describe("a worker that fails too often", () => {
  /** Does so many tasks, one after the other, as `ends` says. */
  function works(broker: Workbench, name: string, ends: string): void {
    for (const end of ends) {
      broker.now += 5;
      broker.finish(name, broker.at(name).slice(0, 1), end === "+" ? {} : { code: 1 });
    }
  }

  it("is only counted where the setting is off", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 100 });
    works(broker, "a", "-".repeat(20));
    expect(broker.worker("a").standing).toBe("good");
    expect(broker.at("a")).toHaveLength(2);
    expect(broker.state.standings.get("a")).toMatchObject({ results: 20, succeeded: 0, recent: "----------" });
    expect(broker.world.kept("standing")).toEqual([]);
  });

  it("gets one task at a time while suspended, and all its slots again after two good ones", () => {
    const broker = new Workbench({ standing: true });
    broker.join("a", { slots: 4 });
    broker.submit({ count: 100 });
    works(broker, "a", "+++++++---");
    expect(broker.worker("a").standing).toBe("suspended");
    // What it had goes on; nothing is added.
    expect(broker.at("a")).toHaveLength(3);
    works(broker, "a", "-+-");
    expect(broker.at("a")).toHaveLength(1);
    works(broker, "a", "+");
    expect(broker.at("a")).toHaveLength(1);
    expect(broker.why("1.90")).toMatch(/failed too often and gets one task at a time/);
    works(broker, "a", "+");
    expect(broker.worker("a").standing).toBe("good");
    expect(broker.at("a")).toHaveLength(4);
  });

  it("gets nothing once banned, until it is forgiven; others do its work", () => {
    const broker = new Workbench({ standing: true });
    broker.join("a", { slots: 1 });
    broker.submit({ count: 100 });
    works(broker, "a", "-".repeat(10));
    expect(broker.at("a")).toEqual([]);
    broker.join("b", { slots: 1 });
    expect(broker.at("b")).toHaveLength(1);
    expect(broker.forgive("a")).toBe(true);
    expect(broker.at("a")).toHaveLength(1);
    expect(broker.forgive("nobody")).toBe(false);
  });

  it("stands as it stood when it comes back under the same name, also to the next broker", () => {
    const broker = new Workbench({ standing: true });
    broker.join("a", { slots: 1 });
    broker.submit({ count: 100 });
    works(broker, "a", "-".repeat(10));
    broker.leave("a");
    broker.join("a", { slots: 1 });
    expect(broker.worker("a").standing).toBe("banned");
    expect(broker.world.kept("standing")).toMatchObject([{ key: "a", value: expect.stringContaining("banned") }]);
  });
});
