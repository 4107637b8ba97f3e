import { describe, expect, it } from "vitest";
import { SessionId } from "../../src/model/ids.js";
import { Workbench } from "./workbench.js";

/** A worker takes the task, starts it if told to, and is lost. */
function lose(broker: Workbench, round: number, started: boolean): void {
  const name = `w${round}`;
  broker.join(name, { resumable: false });
  if (started) broker.start(name, "1.0");
  broker.away(name);
}

describe("a worker that is lost with a task", () => {
  it("uses up the crash limit if the task had started, and the task then fails with the reason", () => {
    const broker = new Workbench();
    broker.submit({ crashLimit: 3 });
    for (let round = 0; round < 2; round++) lose(broker, round, true);
    expect(broker.job(1).ended).toBeUndefined();
    lose(broker, 2, true);
    expect(broker.result("1.0")).toMatchObject({
      state: "failed",
      attempt: 3,
      error: "3 workers were lost while they ran this task",
    });
  });

  it("costs nothing if the task had not started", () => {
    const broker = new Workbench();
    broker.submit({ crashLimit: 1 });
    for (let round = 0; round < 10; round++) lose(broker, round, false);
    broker.join("last");
    broker.finish("last");
    expect(broker.result("1.0")).toMatchObject({ state: "succeeded", attempt: 11 });
  });

  it("costs nothing if it leaves in order, gives back, or if the broker dies", () => {
    const broker = new Workbench();
    broker.submit({ crashLimit: 1 });
    broker.join("a");
    broker.start("a", "1.0");
    broker.leave("a");
    broker.join("b");
    broker.start("b", "1.0");
    broker.giveBack("b", "1.0");
    broker.start("b", "1.0");
    const after = broker.reopened();
    after.join("b");
    expect(after.at("b")).toEqual(["1.0"]);
    expect(after.job(1).ended).toBeUndefined();
  });

  it("does not use up retries, nor do failures use up the crash limit", () => {
    const broker = new Workbench({ retryBackoffMs: 0 });
    broker.submit({ crashLimit: 2, retries: 1 });
    lose(broker, 0, true);
    broker.join("a");
    broker.fail("a", "1.0");
    expect(broker.at("a")).toEqual(["1.0"]);
    broker.finish("a");
    expect(broker.result("1.0")?.state).toBe("succeeded");
  });

  it("and comes back in a new life has crashed with what it had started", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2, crashLimit: 1 });
    broker.start("a", "1.0");
    broker.join("a", { slots: 2, session: SessionId("a 2") });
    expect(broker.result("1.0")?.state).toBe("failed");
    expect(broker.attempt("a", "1.1")).toBe(2);
  });

  it("is no limit at all where the limit is 0", () => {
    const broker = new Workbench();
    broker.submit({ crashLimit: 0 });
    for (let round = 0; round < 20; round++) lose(broker, round, true);
    expect(broker.job(1).ended).toBeUndefined();
  });
});
