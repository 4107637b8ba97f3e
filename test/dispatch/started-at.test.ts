import { describe, expect, it } from "vitest";
import { claimOf, claimsOf } from "../../src/dispatch/state.js";
import { JobId } from "../../src/model/ids.js";
import { Workbench } from "./workbench.js";

const WORKER = { canPrefetch: true, slots: 8 };

/** When this task of job 1 was started, as far as dispatch knows. */
const startedAt = (broker: Workbench, index: number): number | undefined =>
  claimOf(broker.worker("a"), JobId(1), index)?.startedAt?.get(index);

function withTasks(count: number, wish: { retries?: number } = {}): Workbench {
  const broker = new Workbench();
  broker.join("a", WORKER);
  broker.submit({ count, ...wish });
  return broker;
}

describe("the time at which a task was started", () => {
  it("is kept for tasks that were started, and for no others", () => {
    const broker = withTasks(4);
    broker.start("a", "1.1");
    const first = broker.now;
    broker.pass(500);
    broker.start("a", "1.2");
    expect([0, 1, 2, 3].map((index) => startedAt(broker, index))).toEqual([undefined, first, first + 500, undefined]);
  });

  it("costs nothing for tasks of which only the end is heard", () => {
    const broker = withTasks(8);
    broker.finish("a", ["1.0", "1.1"]);
    expect(claimsOf(broker.worker("a")).map((claim) => claim.startedAt)).toEqual([undefined]);
  });

  it("is forgotten when the task ends", () => {
    const broker = withTasks(3);
    broker.start("a", "1.0", "1.1");
    broker.finish("a", ["1.0"]);
    expect(claimsOf(broker.worker("a")).map((claim) => [...(claim.startedAt?.keys() ?? [])])).toEqual([[1]]);
  });

  it("stays with tasks whose neighbours go back", () => {
    const broker = withTasks(8, { retries: 1 });
    const first = broker.now;
    broker.start("a", "1.0", "1.5");
    broker.pass(100);
    broker.giveBack("a", "1.2");
    broker.start("a", "1.3", "1.4");
    broker.fail("a", "1.4");
    expect([0, 1, 3, 5].map((index) => startedAt(broker, index))).toEqual([first, undefined, first + 100, first]);
  });

  it("stays what it was when the start is told again, and after the worker was away", () => {
    const broker = withTasks(2);
    const first = broker.now;
    broker.start("a", "1.0");
    broker.pass(100);
    broker.start("a", "1.0");
    broker.away("a");
    broker.pass(100);
    const running = { job: JobId(1), first: 0, last: 0, attempt: 1, state: "running" } as const;
    broker.join("a", WORKER, [running, { ...running, first: 1, last: 1, state: "prefetched" }]);
    expect([startedAt(broker, 0), startedAt(broker, 1)]).toEqual([first, undefined]);
  });

  it("is not known of what was running before the broker was started", () => {
    const before = withTasks(2);
    before.start("a", "1.0");
    const broker = before.reopened();
    const running = { job: JobId(1), first: 0, last: 0, attempt: 1, state: "running" } as const;
    broker.join("a", WORKER, [running, { ...running, first: 1, last: 1, state: "prefetched" }]);
    broker.start("a", "1.0", "1.1");
    expect([startedAt(broker, 0), startedAt(broker, 1)]).toEqual([undefined, broker.now]);
  });
});
