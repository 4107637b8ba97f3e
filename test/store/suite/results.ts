import { expect, it } from "vitest";
import { BOB, type Broker, NOW, result, results, waiting } from "./kit.js";

export function describeResults(broker: () => Broker): void {
  it("counts results by how they ended, and ends the job with the last", async () => {
    const { job, taskRange } = await broker().submitAll(5);
    const out = await broker().claim(taskRange, 0, 4);
    const mixed = [
      result(0),
      result(1, { state: "failed", code: 3 }),
      result(2, { state: "cancelled", code: 0 }),
      result(3),
    ];
    expect(await broker().settle(out, mixed, false)).toEqual({
      op: "settle",
      lost: false,
      progress: { counters: { succeeded: 2, failed: 1, cancelled: 1 } },
    });
    const last = await broker().settle(out, [result(4)], true, NOW + 9);
    expect(last.progress).toEqual({ counters: { succeeded: 3, failed: 1, cancelled: 1 }, ended: "failed" });
    const stored = await broker().job(job);
    expect(stored.ended).toEqual({ at: NOW + 9, state: "failed" });
    expect(stored.counters).toEqual({ succeeded: 3, failed: 1, cancelled: 1 });
  });

  it("gives back every field of a result, and leaves out what was not there", async () => {
    const { job, taskRange } = await broker().submitAll(4);
    const out = await broker().claim(taskRange, 0, 3);
    const { code: _, ...noCode } = result(0);
    const all = [
      { ...noCode, signal: "SIGKILL", timedOut: true, state: "failed" as const, outputBytes: 12 },
      { ...noCode, index: 1, error: "cannot run: ünknown", timedOut: false, state: "failed" as const },
      result(2, { code: 255, attempt: 3, worker: "another", cpuMs: 10, peakMemory: 5 * 2 ** 40 }),
      result(3),
    ];
    await broker().settle(out, all);
    expect((await broker().store.results(job.id, { from: 0, limit: 10 })).results).toEqual(all);
  });

  it("sums up what the tasks of a job used", async () => {
    const { job, taskRange } = await broker().submitAll(4);
    const out = await broker().claim(taskRange, 0, 3);
    const range = { first: 0, last: 2 };
    expect(await broker().store.usage(job.id, range)).toEqual([]);
    const times = { started: NOW, ended: NOW + 1_500 };
    const used = [
      result(0, { ...times, cpuMs: 1_200, peakMemory: 3 * 2 ** 30 }),
      result(1, { ...times, cpuMs: 30, peakMemory: 5 * 2 ** 30, state: "failed", code: 1 }),
      result(2, { ...times, ended: NOW + 5 }),
      result(3, { ...times, ended: NOW + 8 }),
    ];
    await broker().settle(out, used, false);
    // Steps: 2^(9/4) is 4.8, 2^(42/4) is 1,448. Eight is the first of step 12.
    const short = { tasks: 1, cpuMs: 0, peakMemory: 0, firstStart: NOW };
    const long = { step: 42, tasks: 2, runMs: 3_000, cpuMs: 1_230, peakMemory: 5 * 2 ** 30, firstStart: NOW };
    expect(await broker().store.usage(job.id, range)).toEqual([{ step: 9, runMs: 5, ...short }, long]);
    expect(await broker().store.usage(job.id, { first: 3, last: 3 })).toEqual([{ step: 12, runMs: 8, ...short }]);
  });

  it("records a task once, however often its result comes", async () => {
    const { job, taskRange } = await broker().submitAll(40);
    const out = await broker().claim(taskRange, 0, 39);
    await broker().settle(out, results(0, 19), false);
    const again = await broker().settle(out, results(0, 29, { state: "failed", code: 9 }), false);
    expect(again.progress?.counters).toEqual({ succeeded: 20, failed: 10, cancelled: 0 });
    const twice = [result(30), result(30, { code: 7, state: "failed" }), result(30)];
    expect((await broker().settle(out, twice, false)).progress?.counters).toEqual({
      succeeded: 21,
      failed: 10,
      cancelled: 0,
    });
    const { results: stored } = await broker().store.results(job.id, { from: 0, limit: 100 });
    expect(stored).toEqual([...results(0, 19), ...results(20, 29, { state: "failed", code: 9 }), result(30)]);
  });

  it("answers lost to a result that comes after its task range was settled", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const out = await broker().claim(taskRange, 0, 1);
    await broker().settle(out, results(0, 1));
    expect(await broker().settle(out, results(0, 1))).toEqual({ op: "settle", lost: true });
    expect((await broker().job(job)).counters.succeeded).toBe(2);
  });

  it("takes thousands of results in one batch", async () => {
    const { job, taskRange } = await broker().submitAll(5000);
    const out = await broker().claim(taskRange, 0, 4999);
    const done = results(0, 4999);
    expect((await broker().settle(out, done)).progress).toEqual({
      counters: { succeeded: 5000, failed: 0, cancelled: 0 },
      ended: "succeeded",
    });
    expect((await broker().store.results(job.id, { from: 0, limit: 5000 })).results).toEqual(done);
  });

  it("pages through results in task order, over holes", async () => {
    const { job, taskRange } = await broker().submitAll(20);
    const out = await broker().claim(taskRange, 0, 19);
    await broker().settle(out, [result(11), result(3), result(7), result(19), result(4)], false);
    const { store } = broker();
    const first = await store.results(job.id, { from: 0, limit: 2 });
    expect(first.results.map(({ index }) => index)).toEqual([3, 4]);
    const second = await store.results(job.id, { from: first.next ?? -1, limit: 2 });
    expect(second.results.map(({ index }) => index)).toEqual([7, 11]);
    const third = await store.results(job.id, { from: second.next ?? -1, limit: 2 });
    expect(third).toEqual({ results: [result(19)] });
  });

  it("counts ends in cells of neighbours, from the first that is asked for", async () => {
    const { job, taskRange } = await broker().submitAll(20);
    const out = await broker().claim(taskRange, 0, 19);
    const ends = [
      ...results(0, 5),
      result(6, { state: "failed", code: 1 }),
      result(15, { state: "cancelled", code: 0 }),
    ];
    await broker().settle(out, ends, false);
    const { store } = broker();
    expect(await store.endCounts(job.id, { first: 0, last: 19 }, 5)).toEqual([
      { cell: 0, succeeded: 5, failed: 0, cancelled: 0 },
      { cell: 1, succeeded: 1, failed: 1, cancelled: 0 },
      { cell: 3, succeeded: 0, failed: 0, cancelled: 1 },
    ]);
    expect(await store.endCounts(job.id, { first: 4, last: 6 }, 2)).toEqual([
      { cell: 0, succeeded: 2, failed: 0, cancelled: 0 },
      { cell: 1, succeeded: 0, failed: 1, cancelled: 0 },
    ]);
    expect(await store.endCounts(job.id, { first: 7, last: 14 }, 1)).toEqual([]);
  });

  it("keeps the attempts that were not a task's last apart from its result", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    const first = await broker().claim(taskRange, 0, 0);
    const failed = result(0, { state: "failed", code: 1, error: "first" });
    const back = waiting(first, { failures: 1 });
    await broker().replace(first, [back], { earlierAttempts: [failed] });
    const second = await broker().claim(back, 0, 0, BOB, 2);
    const failedAgain = result(0, { state: "failed", code: 2, attempt: 2, worker: BOB });
    const backAgain = waiting(second, { failures: 2 });
    await broker().replace(second, [backAgain], { earlierAttempts: [failedAgain] });
    const third = await broker().claim(backAgain, 0, 0, BOB, 3);
    await broker().settle(third, [result(0, { attempt: 3, worker: BOB })]);
    expect(await broker().store.earlierAttempts(job.id, 0)).toEqual([failed, failedAgain]);
    expect((await broker().job(job)).counters).toEqual({ succeeded: 1, failed: 0, cancelled: 0 });
  });
}
