import { describe, expect, it } from "vitest";
import { Workbench } from "./workbench.js";

function two(any = false): Workbench {
  const broker = new Workbench();
  broker.join("a", { slots: 2 });
  const first = broker.submit();
  broker.submit({ count: 2, after: [{ job: first, any }] });
  return broker;
}

describe("a job after another", () => {
  it("begins when the other has succeeded", () => {
    const broker = two();
    expect(broker.at("a")).toEqual(["1.0"]);
    expect(broker.why("2.0")).toBe("its job waits for job 1");
    broker.finish("a");
    expect(broker.at("a")).toEqual(["2.0", "2.1"]);
  });

  it("is cancelled with the reason when the other fails", () => {
    const broker = two();
    broker.fail("a", "1.0");
    expect(broker.job(2)).toMatchObject({
      reason: "job 1, which it waits for, failed",
      ended: { state: "cancelled" },
    });
  });

  it("is cancelled with the reason when the other is cancelled, and so on down the line", () => {
    const broker = two();
    broker.submit({ after: [{ job: 2 }] });
    broker.cancel(1);
    broker.finish("a", ["1.0"], { code: 143 });
    expect(broker.job(2).reason).toBe("job 1, which it waits for, was cancelled");
    expect(broker.job(3)).toMatchObject({
      reason: "job 2, which it waits for, was cancelled",
      ended: { state: "cancelled" },
    });
  });

  it("with any, begins however the other ends", () => {
    const broker = two(true);
    broker.fail("a", "1.0");
    expect(broker.at("a")).toEqual(["2.0", "2.1"]);
  });

  it("waits for all that it names", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3 });
    broker.submit();
    broker.submit();
    broker.submit({ after: [{ job: 1 }, { job: 2 }] });
    broker.finish("a", ["2.0"]);
    expect(broker.at("a")).toEqual(["1.0"]);
    broker.finish("a", ["1.0"]);
    expect(broker.at("a")).toEqual(["3.0"]);
  });

  it("is cancelled too if the other failed while this one was on its way to the store", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    broker.fail("a", "1.0");
    broker.submit({ after: [{ job: 1 }] });
    expect(broker.job(2)).toMatchObject({
      reason: "job 1, which it waits for, failed",
      ended: { state: "cancelled" },
    });
  });

  it("is cancelled too if the broker died between the other's failure and the cancel", () => {
    const broker = two();
    const { world, state } = broker;
    const [claim] = broker.worker("a").claims.get(1 as never) ?? [];
    const result = {
      index: 0,
      attempt: 1,
      state: "failed" as const,
      worker: "a",
      started: 0,
      ended: 1,
      outputBytes: 0,
    };
    if (claim === undefined) throw new Error("a has nothing");
    const settle = { op: "settle" as const, job: claim.job.id, rangeId: claim.rangeId, results: [result], empty: true };
    world.apply([settle], state.epoch, broker.now);
    const after = broker.reopened();
    expect(after.job(2).ended?.state).toBe("cancelled");
  });

  it("waits for the new end of a job that runs again", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    broker.fail("a", "1.0");
    broker.rerun(1, ["failed"], [{ first: 0, last: 0 }]);
    broker.submit({ after: [{ job: 1 }] });
    expect(broker.why("2.0")).toBe("its job waits for job 1");
    broker.finish("a");
    expect(broker.at("a")).toEqual(["2.0"]);
  });

  it("that is cancelled while it waits is over, and the other's end does not stir it", () => {
    const broker = two();
    broker.cancel(2);
    expect(broker.job(2).ended?.state).toBe("cancelled");
    broker.finish("a");
    expect(broker.at("a")).toEqual([]);
    expect(broker.state.waitingFor.size).toBe(0);
  });
});
