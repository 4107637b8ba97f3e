import { afterEach, beforeEach, expect, it } from "vitest";
import type { JobId } from "../../../src/model/ids.js";
import { LIMIT_BUCKET, type LimitRule } from "../../../src/model/limit.js";
import { sizeOf } from "../../../src/model/ranges.js";
import type { TaskRange, Write } from "../../../src/model/store.js";
import { ANN, BOB, Broker, type MakeStore, NOW, newRangeId, result, type StoreHarness, waiting } from "./kit.js";

const HOUR = 3_600_000;

const setLimit = (broker: Broker, name: string, rule: LimitRule | null) =>
  broker.write({ op: "put", bucket: LIMIT_BUCKET, key: name, value: rule === null ? null : JSON.stringify(rule) });

/** A claim of the front of a task range, whose start counts against limits. */
async function start(broker: Broker, from: TaskRange, count: number, limits: readonly string[], worker = ANN) {
  const id = newRangeId();
  const [first, last] = [from.first, from.first + count - 1];
  const write: Write = { op: "claim", from: from.id, rangeId: id, first, last, attempt: 1, worker, limits };
  expect(await broker.write(write)).toMatchObject({ lost: false });
  return { ...from, id, first, last, attempt: 1, worker };
}

/** One broker alone counts by itself; the store keeps the starts for its successor. */
export function describeLimitStarts(make: MakeStore): void {
  it("keeps the starts of limits with a rate through a close and an open, for the interval", async () => {
    const harness = await make();
    try {
      const before = await Broker.at(harness.handle());
      if (before.store.shared) {
        expect(before.held.limitStarts).toBeUndefined();
        return await before.store.close();
      }
      expect(before.held.limitStarts).toEqual([]);
      await setLimit(before, "api", { rate: { starts: 5, intervalMs: HOUR } });
      await setLimit(before, "disk", { running: 2 });
      const { taskRange } = await before.submitAll(10);
      await start(before, taskRange, 2, ["api", "disk", "gone"]);
      await start(before, { ...taskRange, first: 2 }, 1, ["api"]);
      await before.claim({ ...taskRange, first: 3 }, 3, 4);
      await before.store.close();
      const after = await Broker.at(harness.handle());
      const total = (after.held.limitStarts ?? []).reduce((sum, { count }) => sum + count, 0);
      expect(total).toBe(3);
      expect((after.held.limitStarts ?? []).every(({ name, at }) => name === "api" && at === NOW)).toBe(true);
      // Two hours later the interval has passed, and the next start removes what has left it.
      const write: Write = {
        op: "claim",
        from: taskRange.id,
        rangeId: newRangeId(),
        ...{ first: 5, last: 5, attempt: 1, worker: ANN, limits: ["api"] },
      };
      await after.write(write, NOW + 2 * HOUR);
      await after.store.close();
      const last = await Broker.at(harness.handle());
      expect(last.held.limitStarts).toEqual([{ name: "api", at: NOW + 2 * HOUR, count: 1 }]);
      await last.store.close();
    } finally {
      await harness.dispose();
    }
  });
}

/** Brokers that share a store: it grants no more leases than limits leave. */
export function describeSharedLimits(make: MakeStore): void {
  let harness: StoreHarness;
  let first: Broker;
  let second: Broker;

  beforeEach(async () => {
    harness = await make();
    first = await Broker.at(harness.handle());
    second = await Broker.at(harness.handle());
  });

  afterEach(async () => {
    await first.store.close();
    await second.store.close();
    harness.check?.();
    await harness.dispose();
  });

  const lease = (broker: Broker, job: JobId, max: number, by: { limits?: readonly string[]; maxRunning?: number }) =>
    broker.write({ op: "lease", job, max, rangeId: newRangeId(), ...by });
  const size = (ranges: readonly TaskRange[]): number => ranges.reduce((sum, one) => sum + sizeOf(one), 0);
  const useOf = async (name: string) => (await first.store.group?.limitUse([name]))?.[0];
  const only = (ranges: readonly TaskRange[]): TaskRange => {
    expect(ranges).toHaveLength(1);
    return ranges[0] as TaskRange;
  };

  it("leases of all brokers and jobs together stay within a limit, until the tasks have ended", async () => {
    await setLimit(first, "api", { running: 5 });
    const { job: a } = await first.submit({ count: 10 });
    const { job: b } = await second.submit({ count: 10 });
    const held = await lease(first, a.id, 3, { limits: ["api"] });
    expect(held).toMatchObject({ mayLease: true });
    expect(held.limited).toBeUndefined();
    const others = await lease(second, b.id, 3, { limits: ["api"] });
    expect(size(others.taskRanges)).toBe(2);
    expect(others.limited).toEqual({ limit: "api" });
    expect(await lease(second, a.id, 1, { limits: ["api"] })).toMatchObject({
      taskRanges: [],
      limited: { limit: "api" },
    });
    // A job that does not name it is not concerned.
    expect(size((await lease(second, a.id, 4, {})).taskRanges)).toBe(4);
    const claimed = await start(first, only(held.taskRanges), 2, ["api"]);
    expect(await useOf("api")).toMatchObject({ running: 2, leased: 3 });
    await first.settle(claimed, [result(0)], false);
    expect(await useOf("api")).toMatchObject({ running: 1, leased: 3 });
    expect(size((await lease(second, b.id, 9, { limits: ["api"] })).taskRanges)).toBe(1);
  });

  it("a task counts through adoption, loss of its broker and replacement, and no longer when it is released", async () => {
    await setLimit(first, "api", { running: 2 });
    const { job } = await first.submit({ count: 10 });
    const { taskRanges } = await lease(first, job.id, 2, { limits: ["api"] });
    const claimed = await start(first, only(taskRanges), 2, ["api"]);
    await second.write({ op: "adopt", worker: ANN });
    expect(await useOf("api")).toMatchObject({ running: 2, leased: 0 });
    const stays = { ...claimed, id: newRangeId(), first: 1 };
    const goes = waiting(claimed, { last: 0 });
    await second.replace(claimed, [stays, goes]);
    expect(await useOf("api")).toMatchObject({ running: 1, leased: 1 });
    expect(await lease(first, job.id, 2, { limits: ["api"] })).toMatchObject({ taskRanges: [] });
    await second.write({ op: "release", rangeId: goes.id });
    expect(await useOf("api")).toMatchObject({ running: 1, leased: 0 });
    const again = await lease(first, job.id, 2, { limits: ["api"] });
    expect(again.taskRanges).toMatchObject([{ id: goes.id, first: 0, last: 0 }]);
    expect(await useOf("api")).toMatchObject({ running: 1, leased: 1 });
  });

  it("leases of one batch share what is left, and take no more than their jobs have", async () => {
    await setLimit(first, "api", { running: 4 });
    const jobs: JobId[] = [];
    for (const count of [1, 2, 3]) jobs.push((await first.submit({ count })).job.id);
    const writes = jobs.map((job) => ({ op: "lease", job, max: 3, rangeId: newRangeId(), limits: ["api"] }) as const);
    const answers = await first.store.commit(writes, NOW);
    const counts = answers.map((one) => (one.op === "lease" ? size(one.taskRanges) : -1));
    expect(counts.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(4);
    // What one of them could not use is there for the next lease.
    let left = 4 - counts.reduce((sum, count) => sum + count, 0);
    for (const job of jobs) left -= size((await lease(first, job, 3, { limits: ["api"] })).taskRanges);
    expect(left).toBe(0);
    expect(await useOf("api")).toMatchObject({ leased: 4 });
  });

  it("a job with fewer tasks than a limit leaves has no more to lease, and waits for no limit", async () => {
    await setLimit(first, "api", { running: 5 });
    const { job } = await first.submit({ count: 3 });
    const all = await lease(first, job.id, 8, { limits: ["api"] });
    expect([size(all.taskRanges), all.mayLease, all.limited]).toEqual([3, false, undefined]);
    const none = await lease(first, job.id, 8, { limits: ["api"] });
    expect([size(none.taskRanges), none.mayLease, none.limited]).toEqual([0, false, undefined]);
  });

  it("maxRunning of a job holds for all brokers together", async () => {
    const { job } = await first.submit({ count: 10 });
    const { taskRanges } = await lease(first, job.id, 2, { maxRunning: 3 });
    const claimed = await start(first, only(taskRanges), 2, []);
    const others = await lease(second, job.id, 2, { maxRunning: 3 });
    expect(size(others.taskRanges)).toBe(1);
    expect(others.limited).toEqual({});
    await first.settle(claimed, [result(0), result(1)]);
    expect(size((await lease(second, job.id, 5, { maxRunning: 3 })).taskRanges)).toBe(2);
  });

  it("a changed maxRunning holds for brokers that have not heard of it", async () => {
    const { job } = await first.submit({ count: 20 });
    expect(size((await lease(first, job.id, 2, { maxRunning: 6 })).taskRanges)).toBe(2);
    await second.write({ op: "edit", job: job.id, changes: { maxRunning: 3 } });
    const lower = await lease(first, job.id, 9, { maxRunning: 6 });
    expect([size(lower.taskRanges), lower.limited]).toEqual([1, {}]);
    await second.write({ op: "edit", job: job.id, changes: { maxRunning: 5 } });
    expect(size((await lease(first, job.id, 9, { maxRunning: 3 })).taskRanges)).toBe(2);
    await setLimit(first, "api", { running: 9 });
    for (const by of [{}, { limits: ["api"] }]) {
      const unknown = await lease(first, job.id, 1, by);
      expect(unknown).toMatchObject({ taskRanges: [], mayLease: true, limited: {} });
    }
  });

  it("several limits of a job hold together", async () => {
    await setLimit(first, "api", { running: 5 });
    await setLimit(first, "disk", { running: 2 });
    const { job } = await first.submit({ count: 10 });
    const both = await lease(first, job.id, 9, { limits: ["api", "disk"], maxRunning: 4 });
    expect(size(both.taskRanges)).toBe(2);
    expect(both.limited).toEqual({ limit: "disk" });
    expect(size((await lease(second, job.id, 9, { limits: ["api"] })).taskRanges)).toBe(3);
  });

  it("no more tasks are started or leased within the interval of a rate than it allows", async () => {
    await setLimit(first, "api", { rate: { starts: 4, intervalMs: HOUR } });
    const { job } = await first.submit({ count: 20 });
    const some = await lease(first, job.id, 3, { limits: ["api"] });
    const claimed = await start(first, only(some.taskRanges), 3, ["api"]);
    await first.settle(claimed, [result(0), result(1), result(2)]);
    expect(await useOf("api")).toMatchObject({ running: 0, leased: 0, starts: 3 });
    const one = await lease(second, job.id, 3, { limits: ["api"] });
    expect(size(one.taskRanges)).toBe(1);
    expect(one.limited).toMatchObject({ limit: "api" });
    expect(one.limited?.nextMs).toBeGreaterThan(HOUR - 60_000);
    await start(second, only(one.taskRanges), 1, ["api"], BOB);
    expect(await useOf("api")).toMatchObject({ starts: 4 });
    expect(await lease(first, job.id, 3, { limits: ["api"] })).toMatchObject({ taskRanges: [] });
    // Brokers of a high rate keep their starts in steps, and as many.
    await setLimit(first, "api", { rate: { starts: 2_000, intervalMs: HOUR } });
    expect(size((await lease(first, job.id, 3, { limits: ["api"] })).taskRanges)).toBe(3);
    expect(await useOf("api")).toMatchObject({ starts: 4, leased: 3 });
  });

  it("a change or the removal of a limit holds from the next lease on", async () => {
    await setLimit(first, "api", { running: 1 });
    const { job } = await first.submit({ count: 20 });
    expect(size((await lease(first, job.id, 9, { limits: ["api"] })).taskRanges)).toBe(1);
    await setLimit(second, "api", { running: 3 });
    expect(size((await lease(first, job.id, 9, { limits: ["api"] })).taskRanges)).toBe(2);
    await setLimit(second, "api", { running: 2 });
    expect(await lease(first, job.id, 9, { limits: ["api"] })).toMatchObject({
      taskRanges: [],
      limited: { limit: "api" },
    });
    await setLimit(second, "api", null);
    const free = await lease(first, job.id, 4, { limits: ["api"] });
    expect(size(free.taskRanges)).toBe(4);
    expect(free.limited).toBeUndefined();
    // What was leased meanwhile counts when there is a limit of this name again.
    await setLimit(second, "api", { running: 7 });
    expect(await lease(first, job.id, 9, { limits: ["api"] })).toMatchObject({
      taskRanges: [],
      limited: { limit: "api" },
    });
  });

  it("many leases at once at both brokers stay within the limit", async () => {
    await setLimit(first, "api", { running: 7, rate: { starts: 100, intervalMs: HOUR } });
    const jobs: JobId[] = [];
    for (let at = 0; at < 12; at++) jobs.push((await first.submit({ count: 5 })).job.id);
    const asked = jobs.map((job, at) => lease(at % 2 === 0 ? first : second, job, 2, { limits: ["api"] }));
    const granted = (await Promise.all(asked)).map(({ taskRanges }) => size(taskRanges));
    expect(granted.reduce((sum, count) => sum + count, 0)).toBe(7);
  });
}
