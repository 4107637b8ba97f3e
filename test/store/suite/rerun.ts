import { expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import type { Job } from "../../../src/model/job.js";
import type { TaskRange } from "../../../src/model/store.js";
import { type Broker, chunk, NOW, newRangeIds, result, results, waiting } from "./kit.js";

const ALL = { from: 0, limit: 999 };

/** A job of ten that has ended: 0, 1 and 5 failed, 8 and 9 cancelled in mid-run, the others succeeded. */
async function tenEnded(broker: Broker): Promise<Job> {
  const { job, taskRange } = await broker.submitAll(10);
  const out = await broker.claim(taskRange, 0, 9);
  const failed = [0, 1, 5].map((index) => result(index, { state: "failed", code: 1 }));
  const others = [2, 3, 4, 6, 7].map((index) => result(index));
  await broker.settle(out, [...failed, ...others, ...results(8, 9, { state: "cancelled" })]);
  return broker.job(job);
}

const shape = (taskRanges: readonly TaskRange[]): string[] =>
  taskRanges.map(({ first, last, attempt }) => `${first}-${last} after ${attempt}`);

const text = async (broker: Broker, job: Job, index: number, attempt?: number): Promise<string> => {
  const page = await broker.store.output(job.id, index, { ...ALL, ...(attempt === undefined ? {} : { attempt }) });
  return page.pieces.map(({ bytes }) => Buffer.from(bytes).toString()).join("");
};

export function describeRerun(broker: () => Broker): void {
  it("lets failed tasks wait again as task ranges of this broker, and the job go on", async () => {
    const job = await tenEnded(broker());
    const taskRange = newRangeIds(5);
    const answer = await broker().write({ op: "rerun", job: job.id, ends: ["failed"], rangeId: taskRange, idCount: 5 });
    const { ended: _, ...open } = job;
    expect(answer).toEqual({
      op: "rerun",
      job: { ...open, counters: { succeeded: 5, failed: 0, cancelled: 2 } },
      taskRanges: [
        { id: taskRange, job: job.id, first: 0, last: 1, attempt: 1, failures: 0, crashes: 0, notBefore: 0 },
        { id: taskRange + 1, job: job.id, first: 5, last: 5, attempt: 1, failures: 0, crashes: 0, notBefore: 0 },
      ],
      count: 3,
    });
    expect(await broker().job(job)).toEqual(answer.job);
    const left = await broker().store.results(job.id, ALL);
    expect(left.results.map(({ index }) => index)).toEqual([2, 3, 4, 6, 7, 8, 9]);
    expect(await broker().store.earlierAttempts(job.id, 5)).toEqual([result(5, { state: "failed", code: 1 })]);
    expect(await broker().lease(job.id, 10)).toMatchObject({ taskRanges: [], mayLease: false });

    const [two, one] = answer.taskRanges;
    if (two === undefined || one === undefined) throw new Error("there are two pieces");
    await broker().settle(await broker().claim(two, 0, 1, undefined, 2), results(0, 1, { attempt: 2 }));
    const again = await broker().claim(one, 5, 5, undefined, 2);
    const last = await broker().settle(again, [result(5, { attempt: 2 })], true, NOW + 50);
    expect(last.progress).toEqual({ counters: { succeeded: 8, failed: 0, cancelled: 2 }, ended: "cancelled" });
    expect((await broker().job(job)).ended).toEqual({ at: NOW + 50, state: "cancelled" });
  });

  it("takes only what lies within the ranges", async () => {
    const job = await tenEnded(broker());
    const ranges = [
      { first: 5, last: 99 },
      { first: 1, last: 2 },
    ];
    const { taskRanges, count } = await broker().rerun(job.id, ["failed", "succeeded"], { ranges });
    expect(shape(taskRanges)).toEqual(["1-2 after 1", "5-7 after 1"]);
    expect(count).toBe(5);
    expect((await broker().job(job)).counters).toEqual({ succeeded: 2, failed: 1, cancelled: 2 });
  });

  it("changes nothing where nothing is to run again", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    await broker().settle(await broker().claim(taskRange, 0, 1), results(0, 1));
    const before = await broker().job(job);
    expect(before.ended?.state).toBe("succeeded");
    for (const ends of [["failed", "cancelled"], []] as const) {
      expect(await broker().rerun(job.id, ends)).toEqual({ op: "rerun", job: before, taskRanges: [], count: 0 });
    }
    const beyond = { ranges: [{ first: 2, last: 9 }] };
    expect((await broker().rerun(job.id, ["succeeded"], beyond)).count).toBe(0);
    expect(await broker().job(job)).toEqual(before);
    expect(await broker().rerun(JobId(4711), ["failed"])).toEqual({ op: "rerun", taskRanges: [], count: 0 });
  });

  it("refuses more pieces than there are names, changes nothing, and takes the rest of the batch", async () => {
    const job = await tenEnded(broker());
    const rerun = { op: "rerun", job: job.id, ends: ["failed"], rangeId: newRangeIds(1), idCount: 1 } as const;
    const other = await broker().submit();
    const answers = await broker().store.commit([rerun, { op: "hold", job: other.job.id, held: true }], NOW);
    expect(answers[0]).toEqual({
      op: "rerun",
      job,
      taskRanges: [],
      count: 0,
      refused: expect.stringMatching(/2 separate ranges.*the 1 that/),
    });
    expect(await broker().job(job)).toEqual(job);
    expect((await broker().store.results(job.id, ALL)).results).toHaveLength(10);
    expect(await broker().store.earlierAttempts(job.id, 0)).toEqual([]);
    expect((await broker().job(other.job)).held).toBe(true);
  });

  it("brings back what never ran because it was cancelled, below the cursor and beyond", async () => {
    const { job, taskRange } = await broker().submit({ count: 10 }, 4);
    if (taskRange === undefined) throw new Error("no task range was granted");
    const out = await broker().claim(taskRange, 0, 1);
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 1, last: 9 }], reason: "no more" });
    await broker().replace({ ...taskRange, first: 2 }, [], { cancelled: 2 });
    await broker().settle(out, results(0, 1));
    expect((await broker().job(job)).counters).toEqual({ succeeded: 1, failed: 0, cancelled: 9 });

    const some = await broker().rerun(job.id, ["cancelled"], { ranges: [{ first: 3, last: 5 }] });
    expect(shape(some.taskRanges)).toEqual(["3-5 after 0"]);
    expect(some.job).toMatchObject({
      cursor: 10,
      reason: "no more",
      cancels: [
        { first: 1, last: 2 },
        { first: 6, last: 9 },
      ],
      counters: { succeeded: 1, failed: 0, cancelled: 6 },
    });
    const rest = await broker().rerun(job.id, ["cancelled"]);
    expect(shape(rest.taskRanges)).toEqual(["1-1 after 1", "2-2 after 0", "6-9 after 0"]);
    expect(rest.job).toMatchObject({ cancels: [], counters: { succeeded: 1, failed: 0, cancelled: 0 } });
    expect(rest.job).not.toHaveProperty("reason");
    expect(rest.job).not.toHaveProperty("ended");
    const [, , fresh] = rest.taskRanges;
    if (fresh === undefined) throw new Error("there are three pieces");
    const { progress } = await broker().settle(await broker().claim(fresh, 6, 9), results(6, 9));
    expect(progress?.counters).toEqual({ succeeded: 5, failed: 0, cancelled: 0 });
  });

  it("gives no attempt's number twice: a task that was tried before it was cancelled goes on behind that", async () => {
    const { job, taskRange } = await broker().submitAll(3);
    const out = await broker().claim(taskRange, 0, 2);
    await broker().write({ op: "output", chunks: [chunk(job, 1, 0, "lost with its worker")] });
    const back = waiting(out, { failures: 1 });
    await broker().replace(out, [back], { earlierAttempts: [result(0, { state: "failed", code: 1 })] });
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 2 }] });
    await broker().replace(back, [], { cancelled: 3 });
    expect((await broker().job(job)).ended?.state).toBe("cancelled");
    const { taskRanges } = await broker().rerun(job.id, ["cancelled"]);
    expect(shape(taskRanges)).toEqual(["0-1 after 1", "2-2 after 0"]);
    expect(await text(broker(), job, 1)).toBe("lost with its worker");
  });

  it("leaves a task alone whose task range still holds others", async () => {
    const { job, taskRange } = await broker().submitAll(4);
    const out = await broker().claim(taskRange, 0, 1);
    const done = await broker().claim({ ...taskRange, first: 2 }, 2, 2);
    await broker().settle(out, [result(0, { state: "failed", code: 1 })], false);
    await broker().settle(done, [result(2, { state: "failed", code: 1 })]);
    const { taskRanges, job: now } = await broker().rerun(job.id, ["failed"]);
    expect(shape(taskRanges)).toEqual(["2-2 after 1"]);
    expect(now?.counters.failed).toBe(1);
    expect((await broker().settle(out, results(0, 1))).progress?.counters).toEqual({
      succeeded: 1,
      failed: 1,
      cancelled: 0,
    });
  });

  it("answers lost to a late result of the attempt that became an earlier one", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    const out = await broker().claim(taskRange, 0, 0);
    await broker().settle(out, [result(0, { state: "failed", code: 1 })]);
    await broker().rerun(job.id, ["failed"]);
    expect(await broker().settle(out, [result(0)])).toEqual({ op: "settle", lost: true });
    expect((await broker().job(job)).counters).toEqual({ succeeded: 0, failed: 0, cancelled: 0 });
  });

  it("keeps the output of each attempt, and shows the latest", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    const out = await broker().claim(taskRange, 0, 0);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "first")] });
    await broker().settle(out, [result(0, { state: "failed", code: 1, outputBytes: 5 })]);
    const { taskRanges } = await broker().rerun(job.id, ["failed"]);
    expect(await text(broker(), job, 0)).toBe("first");
    const [piece] = taskRanges;
    if (piece === undefined) throw new Error("there is a piece");
    const again = await broker().claim(piece, 0, 0, undefined, 2);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "second", { attempt: 2 })] });
    expect(await broker().store.storedOutputBytes([{ job: job.id, index: 0, attempt: 2 }])).toEqual([6]);
    expect(await text(broker(), job, 0)).toBe("second");
    await broker().settle(again, [result(0, { attempt: 2, outputBytes: 6 })]);
    expect(await text(broker(), job, 0)).toBe("second");
    expect(await text(broker(), job, 0, 1)).toBe("first");
    expect(await broker().store.earlierAttempts(job.id, 0)).toEqual([
      result(0, { state: "failed", code: 1, outputBytes: 5 }),
    ]);
  });

  it("can follow the end of the job in one batch", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const out = await broker().claim(taskRange, 0, 1);
    const answers = await broker().store.commit(
      [
        { op: "settle", job: job.id, rangeId: out.id, results: results(0, 1, { state: "failed" }), empty: true },
        { op: "rerun", job: job.id, ends: ["failed"], rangeId: newRangeIds(9), idCount: 9 },
      ],
      NOW,
    );
    expect(answers).toMatchObject([{ progress: { ended: "failed" } }, { count: 2, job: { counters: { failed: 0 } } }]);
    expect(await broker().job(job)).not.toHaveProperty("ended");
  });
}
