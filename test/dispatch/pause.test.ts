import { describe, expect, it } from "vitest";
import { SessionId } from "../../src/model/ids.js";
import { Workbench } from "./workbench.js";

describe("a paused pool", () => {
  it("starts none of its tasks, gets prefetched ones back, and leaves other pools alone", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, canPrefetch: true });
    broker.join("b", { pool: "gpu" });
    const job = broker.submit({ count: 1_000 });
    for (let round = 0; round < 20; round++) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 1));
    }
    expect(broker.worker("a").prefetched).toBeGreaterThan(2);
    broker.pausePool("default", "new driver");
    const back = broker.asked("retract").at(-1) ?? [];
    broker.giveBack("a", ...back);
    expect(broker.at("a")).toHaveLength(2);
    broker.finish("a");
    expect(broker.at("a")).toEqual([]);
    const later = broker.submit();
    const other = broker.submit({ pool: "gpu" });
    expect([broker.at("a"), broker.at("b")]).toEqual([[], [`${other}.0`]]);
    expect(broker.why(`${later}.0`)).toBe("its pool default is paused: new driver");
    broker.resumePool("default");
    expect(broker.at("a").length).toBeGreaterThan(1);
    expect(broker.job(job).ended).toBeUndefined();
  });
});

describe("a drained worker", () => {
  it("gets tasks again, unless it ends", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.drain("a");
    const job = broker.submit({ count: 2 });
    expect(broker.at("a")).toEqual([]);
    expect(broker.undrain("a")).toBe(true);
    expect(broker.at("a")).toEqual([`${job}.0`]);
    expect(broker.undrain("a")).toBe(false);
    broker.drain("a", true);
    broker.finish("a");
    expect(broker.undrain("a")).toBe(false);
    expect(broker.at("a")).toEqual([]);
  });

  it("that has ended can be drained and undrained again once it is started again", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    broker.drain("a", true);
    broker.join("a", { session: SessionId("a 2") });
    broker.drain("a");
    expect(broker.undrain("a")).toBe(true);
  });
});
