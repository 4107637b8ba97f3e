import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

describe("max-fails", () => {
  it("cancels the rest of the job once more tasks than that have failed, and says why", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    broker.submit({ count: 100, maxFails: 2 });
    broker.fail("a", "1.0", "1.1");
    expect(broker.job(1).cancels).toEqual([]);
    broker.fail("a", "1.2");
    expect(broker.job(1)).toMatchObject({ reason: "more than 2 tasks failed" });
    broker.finish("a", broker.at("a"), { code: 143 });
    expect(broker.job(1)).toMatchObject({
      counters: { succeeded: 0, failed: 3, cancelled: 97 },
      ended: { state: "failed" },
    });
  });

  it("is not overrun by what workers have in stock", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, canPrefetch: true });
    broker.submit({ count: 1_000, maxFails: 3 });
    let failed = 0;
    while (broker.job(1).reason === undefined && failed < 100) {
      broker.now += 5;
      const two = broker.at("a").slice(0, 2);
      broker.fail("a", ...two);
      failed += two.length;
      expect(broker.at("a").length).toBeLessThanOrEqual(2 + 3);
    }
    expect(failed).toBe(4);
  });

  it("counts a task after its last retry only", () => {
    const broker = new Workbench({ retryBackoffMs: 10 });
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2, retries: 1, maxFails: 0 });
    broker.fail("a", "1.0", "1.1");
    expect(broker.job(1).cancels).toEqual([]);
    broker.pass(10);
    broker.fail("a", "1.0");
    expect(broker.job(1).reason).toBe("more than 0 tasks failed");
  });

  it("counts tasks that reached the crash limit", () => {
    const broker = new Workbench();
    broker.submit({ count: 3, crashLimit: 1, maxFails: 0 });
    broker.join("a", { resumable: false });
    broker.start("a", "1.0");
    broker.away("a");
    expect(broker.job(1)).toMatchObject({ counters: { failed: 1, cancelled: 2 }, ended: { state: "failed" } });
  });
});
