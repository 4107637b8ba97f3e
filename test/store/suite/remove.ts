import { expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import type { Job } from "../../../src/model/job.js";
import type { TaskRange } from "../../../src/model/store.js";
import { ANN, Broker, chunk, type MakeStore, NOW, newRangeIds, result, waiting } from "./kit.js";

const ALL = { from: 0, limit: 999 };
const FIRST = { first: 0, last: 0 };

/** A job of one that has ended, with something of everything. */
async function ended(broker: Broker): Promise<Job> {
  const { job, taskRange } = await broker.submit({}, 1, ["entry"]);
  if (taskRange === undefined) throw new Error("no task range was granted");
  const first = await broker.claim(taskRange, 0, 0);
  const back = waiting(first, { failures: 1 });
  await broker.replace(first, [back], { earlierAttempts: [result(0, { state: "failed", code: 1 })] });
  const second = await broker.claim(back, 0, 0, undefined, 2);
  await broker.write({ op: "output", chunks: [chunk(job, 0, 0, "text", { attempt: 2 })] });
  await broker.settle(second, [result(0, { attempt: 2, outputBytes: 4 })]);
  return job;
}

async function expectNothingOf(broker: Broker, job: Job): Promise<void> {
  const { store } = broker;
  expect(await store.job(job.id)).toBeUndefined();
  expect((await store.jobs({ limit: 99 })).jobs.map(({ id }) => id)).not.toContain(job.id);
  expect(await store.results(job.id, ALL)).toEqual({ results: [] });
  expect(await store.earlierAttempts(job.id, 0)).toEqual([]);
  expect(await store.entries(job.id, FIRST)).toEqual([]);
  expect(await store.output(job.id, 0, ALL)).toEqual({ pieces: [] });
}

export function describeRemove(make: MakeStore): void {
  it("forgets an ended job with all that belongs to it, and nothing of another", async () => {
    const harness = await make();
    try {
      let broker = await Broker.at(harness.handle());
      const [gone, kept] = [await ended(broker), await ended(broker)];
      expect(await broker.write({ op: "remove", job: gone.id })).toEqual({ op: "remove", removed: true });
      await expectNothingOf(broker, gone);
      expect(await broker.write({ op: "remove", job: gone.id })).toEqual({ op: "remove", removed: false });
      await broker.store.close();
      broker = await Broker.at(harness.handle());
      await expectNothingOf(broker, gone);
      expect((await broker.store.results(kept.id, ALL)).results).toHaveLength(1);
      expect(await broker.store.earlierAttempts(kept.id, 0)).toHaveLength(1);
      expect(await broker.store.entries(kept.id, FIRST)).toEqual(["entry"]);
      expect((await broker.store.output(kept.id, 0, ALL)).pieces).toHaveLength(1);
      expect((await broker.submit()).job.id).toBeGreaterThan(kept.id);
      await broker.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("does not give a removed job's number to another, not even that of the newest", async () => {
    const harness = await make();
    try {
      const broker = await Broker.at(harness.handle());
      const gone = await ended(broker);
      await broker.write({ op: "remove", job: gone.id });
      const { job } = await broker.submit();
      expect(job.id).toBeGreaterThan(gone.id);
      await broker.store.close();
    } finally {
      await harness.dispose();
    }
  });

  it("removes a large job in several writes, the first results first, and lets none of it run again meanwhile", async () => {
    const harness = await make();
    try {
      let broker = await Broker.at(harness.handle());
      const count = 25_000;
      const { job, taskRange } = await broker.submit({ count }, count, Array(count).fill("entry"));
      const claimed = await broker.claim(taskRange as TaskRange, 0, count - 1);
      const all = Array.from({ length: count }, (_, index) => result(index));
      await broker.settle(claimed, all);
      const small = await ended(broker);
      let writes = 0;
      for (let removed = false; !removed; writes++) {
        const writesOfBatch = [job.id, small.id].map((id) => ({ op: "remove", job: id }) as const);
        const [large, other] = await broker.store.commit(writesOfBatch, NOW);
        if (writes === 0) {
          if (large?.op === "remove" && large.removed) return;
          expect([large, other]).toEqual([1, 2].map(() => ({ op: "remove", removed: false, more: true })));
          // The broker may die between two of the writes.
          await broker.store.close();
          broker = await Broker.at(harness.handle());
          expect((await broker.job(job)).ended).toBeDefined();
          expect((await broker.store.results(job.id, { from: 0, limit: 1 })).results[0]?.index).toBeGreaterThan(5_000);
          expect(await broker.rerun(job.id, ["succeeded"])).toMatchObject({
            count: 0,
            refused: "the job is being removed",
          });
        }
        removed = large?.op === "remove" && large.removed;
        expect(writes).toBeLessThan(10);
      }
      expect(writes).toBeGreaterThan(2);
      await broker.write({ op: "remove", job: small.id });
      for (const gone of [job, small]) await expectNothingOf(broker, gone);
      await broker.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("leaves a job alone that has not ended, and one that runs again", async () => {
    const harness = await make();
    try {
      const broker = await Broker.at(harness.handle());
      const { job } = await broker.submit();
      expect(await broker.write({ op: "remove", job: job.id })).toEqual({ op: "remove", removed: false });
      expect(await broker.job(job)).toEqual(job);
      const again = await ended(broker);
      await broker.rerun(again.id, ["succeeded"]);
      expect(await broker.write({ op: "remove", job: again.id })).toEqual({ op: "remove", removed: false });
      expect(await broker.store.earlierAttempts(again.id, 0)).toHaveLength(2);
      expect(await broker.write({ op: "remove", job: JobId(4711) })).toEqual({ op: "remove", removed: false });
      await broker.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("removes a job in the batch that ended it, and knows it no more in the next write", async () => {
    const harness = await make();
    try {
      const broker = await Broker.at(harness.handle());
      const { job, taskRange } = await broker.submitAll(2);
      const out = await broker.claim(taskRange, 0, 1);
      const answers = await broker.store.commit(
        [
          { op: "output", chunks: [chunk(job, 0, 0, "text"), chunk(job, 1, 0, "of no end")] },
          {
            op: "settle",
            job: job.id,
            rangeId: out.id,
            results: [result(0, { outputBytes: 4 }), result(1)],
            empty: true,
          },
          { op: "remove", job: job.id },
          { op: "cancel", job: job.id, ranges: [FIRST] },
          { op: "rerun", job: job.id, ends: ["succeeded"], rangeId: newRangeIds(1), idCount: 1 },
        ],
        NOW,
      );
      expect(answers.slice(2)).toEqual([
        { op: "remove", removed: true },
        { op: "cancel" },
        { op: "rerun", taskRanges: [], count: 0 },
      ]);
      await expectNothingOf(broker, job);
      expect((await broker.store.output(job.id, 1, ALL)).pieces).toEqual([]);
      await broker.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("gives a claim its entries although its job is removed in the same batch", async () => {
    const harness = await make();
    try {
      const earlier = await Broker.at(harness.handle());
      const { job } = await earlier.submit({}, 0, ["a", "b"]);
      await earlier.store.close();
      const broker = await Broker.at(harness.handle());
      const [taskRange] = (await broker.lease(job.id, 2)).taskRanges;
      if (taskRange === undefined) throw new Error("no task range was granted");
      const range = { from: taskRange.id, rangeId: newRangeIds(1), first: 0, last: 1, attempt: 1, worker: ANN };
      const answers = await broker.store.commit(
        [
          { op: "claim", ...range },
          { op: "settle", job: job.id, rangeId: range.rangeId, results: [result(0), result(1)], empty: true },
          { op: "remove", job: job.id },
        ],
        NOW,
      );
      expect(answers[0]).toEqual({ op: "claim", lost: false, entries: ["a", "b"] });
      await broker.store.close();
    } finally {
      await harness.dispose();
    }
  });
}
