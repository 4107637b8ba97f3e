import { describe, expect, it } from "vitest";
import { type Decisions, onJobAdded } from "../../src/dispatch/index.js";
import { JobId, SessionId } from "../../src/model/ids.js";
import { ModelWorld } from "../store/model-store.js";
import { Workbench } from "./workbench.js";

const holding = (
  job: number,
  first: number,
  last: number,
  state: "prefetched" | "running" | "finished",
  attempt = 1,
) => ({
  job: JobId(job),
  first,
  last,
  attempt,
  state,
});

describe("a worker that comes back", () => {
  it("in the same life goes on with what it has; what never arrived is handed out again at no cost", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    broker.submit({ count: 4, crashLimit: 1 });
    broker.start("a", "1.0", "1.1");
    broker.away("a");
    broker.pass(20_000);
    const { keep, drop } = broker.join("a", { slots: 4 }, [
      holding(1, 0, 0, "running"),
      holding(1, 2, 2, "prefetched"),
    ]);
    expect(keep).toEqual([{ job: 1, index: 0, attempt: 1 }]);
    expect(drop).toEqual([]);
    expect(broker.attempt("a", "1.1")).toBe(2);
    expect(broker.attempt("a", "1.3")).toBe(2);
    expect(broker.job(1).counters.failed).toBe(0);
    expect(broker.finish("a")).toBe(0);
    expect(broker.job(1).ended?.state).toBe("succeeded");
  });

  it("is waited for a moment if its side closed the connection, and for the grace if it went silent", () => {
    for (const [closed, waits] of [
      [true, 2_000],
      [false, 30_000],
    ] as const) {
      const broker = new Workbench();
      broker.join("a", { slots: 2 });
      broker.submit({ count: 2 });
      broker.start("a", "1.0", "1.1");
      broker.join("b", { slots: 2 });
      broker.away("a", closed);
      broker.pass(waits - 1);
      expect(broker.at("b")).toEqual([]);
      broker.pass(1);
      expect(broker.at("b")).toEqual(["1.0", "1.1"]);
    }
  });

  it("keeps its task if it is back within the moment, however often it was cut", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    broker.start("a", "1.0");
    broker.join("b");
    for (let cut = 0; cut < 5; cut++) {
      broker.away("a", true);
      broker.pass(1_999);
      expect(broker.join("a", {}, [holding(1, 0, 0, "running")]).keep).toHaveLength(1);
    }
    broker.finish("a");
    expect(broker.result("1.0")).toMatchObject({ state: "succeeded", worker: "a", attempt: 1 });
  });

  it("is not waited for if its protocol cannot resume", () => {
    const broker = new Workbench();
    broker.join("a", { resumable: false });
    broker.submit();
    broker.start("a", "1.0");
    broker.join("b");
    broker.away("a");
    expect(broker.at("b")).toEqual(["1.0"]);
  });

  it("with the same directory in a new process releases at once what it does not have", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2 });
    broker.start("a", "1.0", "1.1");
    broker.away("a", true);
    broker.pass(500);
    broker.join("a", { slots: 2, session: SessionId("new") }, [holding(1, 0, 0, "finished")]);
    expect(broker.attempt("a", "1.0")).toBe(1);
    expect(broker.attempt("a", "1.1")).toBe(2);
  });

  it("is still drained after its tasks went to others, for the grace period", () => {
    for (const [later, drained] of [
      [29_999, true],
      [30_000, false],
    ] as const) {
      const broker = new Workbench();
      broker.join("a");
      broker.submit();
      broker.start("a", "1.0");
      broker.drain("a");
      broker.join("b");
      broker.away("a", true);
      broker.pass(2_000);
      expect(broker.at("b")).toEqual(["1.0"]);
      broker.pass(later);
      broker.submit();
      broker.join("a");
      expect(broker.at("a").includes("2.0")).toBe(!drained);
    }
  });

  it("is still drained after its process ended without tasks, for the grace period", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.drain("a");
    broker.away("a", true);
    broker.pass(29_999);
    broker.join("a");
    broker.submit();
    expect(broker.at("a")).toEqual([]);
  });

  it("with tasks of a job that had the same number in another store drops them, though it has such tasks now", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit({ acceptedBy: "this process" });
    expect(broker.at("a")).toEqual(["1.0"]);
    const old = { ...holding(1, 0, 0, "finished"), acceptedBy: "another process" };
    const { keep, drop } = broker.join("a", {}, [old]);
    expect(keep).toEqual([]);
    expect(drop).toEqual([{ job: 1, first: 0, last: 0, attempt: 1 }]);
    expect(broker.attempt("a", "1.0")).toBe(2);
    const own = { ...holding(1, 0, 0, "running", 2), acceptedBy: "this process" };
    expect(broker.join("a", {}, [own]).keep).toEqual([{ job: 1, index: 0, attempt: 2 }]);
  });

  it("after its grace has nothing any more, and its late results count for nothing", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    broker.start("a", "1.0");
    broker.away("a");
    broker.pass(30_000);
    broker.join("b");
    expect(broker.at("b")).toEqual(["1.0"]);
    const { drop } = broker.join("a", {}, [holding(1, 0, 0, "finished")]);
    expect(drop).toEqual([{ job: 1, first: 0, last: 0, attempt: 1 }]);
    expect(broker.finish("a", ["1.0"], { code: 5 })).toBe(1);
    broker.finish("b");
    expect(broker.result("1.0")).toMatchObject({ state: "succeeded", worker: "b", attempt: 2 });
  });

  it("with a list longer than anything it can have is answered without counting through it", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2 });
    const { drop } = broker.join("a", { slots: 2 }, [holding(1, 1, Number.MAX_SAFE_INTEGER - 1, "running")]);
    expect(drop).toEqual([{ job: 1, first: 2, last: Number.MAX_SAFE_INTEGER - 1, attempt: 1 }]);
    expect(broker.attempt("a", "1.0")).toBe(2);
  });

  it("with less room than before has what runs in it first, and is given nothing until some is free", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 4 });
    broker.submit({ slots: 4 });
    broker.submit({ count: 5 });
    broker.join("a", { slots: 2 }, [holding(1, 0, 0, "running")]);
    expect(broker.worker("a").prefetched).toBe(1);
    broker.finish("a", ["1.0"]);
    expect(broker.worker("a").free.slots).toBe(0);
  });

  it("is still drained in the same life, and is not in the next", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.drain("a");
    broker.away("a");
    broker.join("a");
    broker.submit();
    expect(broker.at("a")).toEqual([]);
    broker.join("a", { session: SessionId("a 2") });
    expect(broker.at("a")).toEqual(["1.0"]);
  });

  it("to a broker that was started again has its grace counted from the start", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.submit();
    const after = broker.reopened();
    after.pass(29_999);
    after.join("b");
    expect(after.at("b")).toEqual([]);
    after.join("a", {}, [holding(1, 0, 0, "running")]);
    after.pass(100_000);
    expect(after.finish("a", ["1.0"])).toBe(0);
    expect(after.job(1).ended?.state).toBe("succeeded");
  });
});

describe("a worker that is gone", () => {
  it("is forgotten at once if it had nothing, or if its protocol cannot resume", () => {
    const broker = new Workbench();
    broker.join("a");
    broker.away("a");
    expect(broker.state.workers.size).toBe(0);
    broker.join("b", { resumable: false });
    broker.submit();
    broker.away("b");
    expect(broker.state.workers.size).toBe(0);
    broker.join("c");
    expect(broker.at("c")).toEqual(["1.0"]);
  });

  it("for an orderly stop gives its tasks to others at once", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2 });
    broker.submit({ count: 2 });
    broker.join("b", { slots: 2 });
    broker.leave("a");
    expect(broker.at("b")).toEqual(["1.0", "1.1"]);
  });
});

describe("brokers of one group", () => {
  it("do not pass a job to and fro that neither has a worker for", () => {
    const world = new ModelWorld({ shared: true });
    const broker = new Workbench({}, world);
    broker.submit({ count: 2 });
    broker.cancel(1, 0, 0);
    expect([...world.taskRanges.values()].map(({ epoch }) => epoch)).toEqual([undefined]);
    broker.join("a");
    expect(broker.at("a")).toEqual(["1.1"]);
  });

  it("know a worker that went to the other and came back by what it has now", () => {
    const world = new ModelWorld({ shared: true });
    const one = new Workbench({}, world);
    const other = new Workbench({}, world);
    one.join("a", { slots: 2 });
    one.submit({ count: 2 });
    const held = [holding(1, 0, 1, "running")];
    one.away("a");
    other.step((out) => onJobAddedElsewhere(other, out, one));
    expect(other.join("a", { slots: 2 }, held).drop).toEqual([]);
    other.away("a");
    expect(one.join("a", { slots: 2 }, held).drop).toEqual([]);
    expect(one.finish("a", ["1.0", "1.1"])).toBe(0);
    expect(one.job(1).ended?.state).toBe("succeeded");
  });
});

function onJobAddedElsewhere(other: Workbench, out: Decisions, one: Workbench): void {
  onJobAdded(other.state, out, one.job(1), undefined, new Set(), other.now);
}
