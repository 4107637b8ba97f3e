import { afterEach, beforeEach, expect, it } from "vitest";
import type { JobId } from "../../../src/model/ids.js";
import type { Write } from "../../../src/model/store.js";
import {
  ANN,
  BOB,
  Broker,
  type MakeStore,
  NOW,
  newRangeId,
  request,
  result,
  results,
  type StoreHarness,
  waiting,
} from "./kit.js";

/** Two brokers on one store. */
export function describeShared(make: MakeStore): void {
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

  it("gives every broker an epoch of its own", () => {
    expect(first.store.shared).toBe(true);
    expect(second.held.epoch).toBeGreaterThan(first.held.epoch);
    expect(second.held.taskRanges).toEqual([]);
    expect(second.held.identity).not.toBeNull();
    expect(second.held.identity).toBe(first.held.identity);
  });

  it("knows the last number that a job got, also where the job is removed", async () => {
    expect(await first.store.group?.lastJob()).toBe(0);
    const { job } = await second.submit({ count: 0 });
    await first.write({ op: "remove", job: job.id });
    expect(await first.store.job(job.id)).toBeUndefined();
    expect(await first.store.group?.lastJob()).toBe(job.id);
  });

  it("gives numbers for jobs that are submitted with them, to no broker twice", async () => {
    const numbers = await Promise.all([first, second].map(({ store }) => store.group?.jobNumbers(3) ?? []));
    expect(new Set(numbers.flat()).size).toBe(6);
    const [id] = numbers[1] ?? [];
    const { job } = await first.submit({ count: 1 });
    expect(job.id).toBeGreaterThan(Math.max(...numbers.flat()));
    const rangeId = newRangeId();
    const numbered: Write = { op: "submit", ...(id && { id }), job: request({ count: 1 }), lease: 1, rangeId };
    const claimed = newRangeId();
    const handOut: Write = { op: "claim", from: rangeId, rangeId: claimed, first: 0, last: 0, attempt: 1, worker: ANN };
    const [stored, handedOut] = await second.store.commit([numbered, handOut], NOW);
    expect(stored).toMatchObject({ op: "submit", job: { id }, taskRange: { id: rangeId } });
    expect(handedOut).toEqual({ op: "claim", lost: false });
    expect(
      await second.write({ op: "settle", job: id ?? job.id, rangeId: claimed, results: [result(0)], empty: true }),
    ).toMatchObject({ lost: false, progress: { ended: "succeeded" } });
  });

  it("makes one job of a submission that two brokers get at the same time, in whatever order with others", async () => {
    const submit = (idempotencyKey: string): Write => ({
      ...{ op: "submit", job: request({ count: 1, idempotencyKey }), entries: ["x"], lease: 1, rangeId: newRangeId() },
    });
    const rounds = Array.from({ length: 20 }, (_, round) => [`a${round}`, `b${round}`]);
    const ids = async ({ store }: Broker, keys: readonly string[]): Promise<JobId[]> =>
      (await store.commit(keys.map(submit), NOW)).map((answer) => {
        if (answer.op === "duplicate") return answer.job;
        if (answer.op !== "submit") throw new Error(`answered by ${answer.op}`);
        return answer.job.id;
      });
    for (const keys of rounds) {
      const [one, other] = await Promise.all([ids(first, keys), ids(second, keys.toReversed())]);
      expect(other).toEqual(one.toReversed());
    }
    expect((await first.store.jobs({ limit: 100 })).jobs).toHaveLength(40);
  });

  it("grants a task to one broker only", async () => {
    const { job } = await first.submit({ count: 100 }, 10);
    const leases = await Promise.all([second.lease(job.id, 30), first.lease(job.id, 30), second.lease(job.id, 30)]);
    const ranges = leases.flatMap(({ taskRanges }) => taskRanges.map(({ first: from, last }) => [from, last] as const));
    expect(ranges.sort(([a], [b]) => a - b)).toEqual([
      [10, 39],
      [40, 69],
      [70, 99],
    ]);
  });

  it("does not let one broker touch another's task ranges", async () => {
    const { taskRange } = await first.submitAll(4);
    const out = await first.claim(taskRange, 0, 1);
    const claim = {
      op: "claim",
      from: taskRange.id,
      rangeId: newRangeId(),
      first: 2,
      last: 3,
      attempt: 1,
      worker: BOB,
    } as const;
    expect(await second.write(claim)).toEqual({ op: "claim", lost: true });
    expect(await second.settle(out, results(0, 1))).toEqual({ op: "settle", lost: true });
    expect(await second.replace(out, [waiting(out)])).toEqual({ op: "replace", lost: true });
    expect(await second.write({ op: "release", rangeId: taskRange.id })).toEqual({ op: "release", lost: true });
    expect((await first.settle(out, results(0, 1))).lost).toBe(false);
  });

  it("leases to one broker what another gave back", async () => {
    const { job, taskRange } = await first.submitAll(4);
    await first.write({ op: "release", rangeId: taskRange.id });
    expect((await second.lease(job.id, 10)).taskRanges).toEqual([taskRange]);
    expect((await first.lease(job.id, 10)).taskRanges).toEqual([]);
    await second.claim(taskRange, 0, 3);
  });

  it("adopts a worker's task ranges with what is settled in them, after which the former owner's writes miss", async () => {
    const { job, taskRange } = await first.submitAll(6);
    const anns = await first.claim(taskRange, 0, 3, ANN);
    const bobs = await first.claim(taskRange, 4, 5, BOB);
    await first.settle(anns, [result(0), result(2)], false);
    expect(await second.write({ op: "adopt", worker: ANN })).toEqual({
      op: "adopt",
      taskRanges: [
        {
          taskRange: anns,
          settled: [
            { first: 0, last: 0 },
            { first: 2, last: 2 },
          ],
        },
      ],
    });
    expect(await first.settle(anns, [result(1)], false)).toEqual({ op: "settle", lost: true });
    expect((await first.settle(bobs, results(4, 5))).lost).toBe(false);
    const last = await second.settle(anns, [result(1), result(3)]);
    expect(last.progress).toEqual({ counters: { succeeded: 6, failed: 0, cancelled: 0 }, ended: "succeeded" });
    expect(await first.store.job(job.id)).toMatchObject({ ended: { at: NOW, state: "succeeded" } });
  });

  it("shows both brokers the same jobs, results and entries", async () => {
    const { job } = await first.submit({}, 1, ["x", "y"]);
    expect(await second.store.job(job.id)).toEqual(job);
    expect(await second.store.entries(job.id, { first: 0, last: 1 })).toEqual(["x", "y"]);
    expect((await second.store.jobs({ limit: 5 })).jobs).toEqual([job]);
  });
}
