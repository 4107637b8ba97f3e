import { expect, it } from "vitest";
import { type Broker, NOW, result, results } from "./kit.js";

const ALL = [{ first: 0, last: 9 }];

export function describeCancel(broker: () => Broker): void {
  it("ends a job at once that nobody has begun", async () => {
    const { job } = await broker().submit({ count: 10 }, 0);
    const cancel = { op: "cancel", job: job.id, ranges: ALL, reason: "no more" } as const;
    expect(await broker().write(cancel, NOW + 3)).toEqual({
      op: "cancel",
      progress: { counters: { succeeded: 0, failed: 0, cancelled: 10 }, ended: "cancelled" },
    });
    expect(await broker().job(job)).toMatchObject({
      cursor: 10,
      cancels: ALL,
      reason: "no more",
      ended: { at: NOW + 3, state: "cancelled" },
    });
    expect(await broker().lease(job.id, 5)).toEqual({ op: "lease", job: job.id, taskRanges: [], mayLease: false });
  });

  it("counts what lies beyond the cursor, and leaves the rest to the broker that has it", async () => {
    const { job, taskRange } = await broker().submit({ count: 10 }, 4);
    if (taskRange === undefined) throw new Error("no task range was granted");
    const out = await broker().claim(taskRange, 0, 1);
    const { progress } = await broker().write({ op: "cancel", job: job.id, ranges: ALL });
    expect(progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 6 } });
    const unrun = await broker().replace(taskRange, [], { cancelled: 2 });
    expect(unrun.progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 8 } });
    const last = await broker().settle(out, results(0, 1, { state: "cancelled" }));
    expect(last.progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 10 }, ended: "cancelled" });
  });

  it("leaves out what workers have, where this is asked for", async () => {
    const { job, taskRange } = await broker().submit({ count: 10 }, 4);
    if (taskRange === undefined) throw new Error("no task range was granted");
    const out = await broker().claim(taskRange, 0, 1);
    const { progress } = await broker().write({ op: "cancel", job: job.id, ranges: ALL, unclaimed: true });
    expect(progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 6 } });
    expect((await broker().job(job))?.cancels).toEqual([{ first: 2, last: 9 }]);
    const last = await broker().settle(out, results(0, 1));
    expect(last.progress?.counters).toEqual({ succeeded: 2, failed: 0, cancelled: 6 });
  });

  it("adds ranges up, merged and cut to the job, and counts once they reach from the cursor to the end", async () => {
    const { job } = await broker().submit({ count: 10 }, 2);
    const cancel = { op: "cancel", job: job.id } as const;
    const some = await broker().write({
      ...cancel,
      ranges: [
        { first: 6, last: 99 },
        { first: 2, last: 3 },
      ],
    });
    expect(some.progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 0 } });
    expect(await broker().job(job)).toMatchObject({
      cursor: 2,
      cancels: [
        { first: 2, last: 3 },
        { first: 6, last: 9 },
      ],
    });
    const rest = await broker().write({ ...cancel, ranges: [{ first: 4, last: 5 }] });
    expect(rest.progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 8 } });
    expect(await broker().job(job)).toMatchObject({ cursor: 10, cancels: [{ first: 2, last: 9 }] });
    expect((await broker().write({ ...cancel, ranges: [{ first: 4, last: 9 }] })).progress?.counters.cancelled).toBe(8);
  });

  it("still leases cancelled tasks before the job's last stretch, for the broker to drop", async () => {
    const { job } = await broker().submit({ count: 10 }, 0);
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 4 }] });
    const { taskRanges } = await broker().lease(job.id, 7);
    expect(taskRanges).toMatchObject([{ first: 0, last: 6 }]);
  });

  it("records a task as cancelled whose result says something else", async () => {
    const { job, taskRange } = await broker().submitAll(3);
    const out = await broker().claim(taskRange, 0, 2);
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 1, last: 1 }] });
    const { progress } = await broker().settle(out, results(0, 2));
    expect(progress?.counters).toEqual({ succeeded: 2, failed: 0, cancelled: 1 });
    const page = await broker().store.results(job.id, { from: 0, limit: 10 });
    expect(page.results.map(({ state }) => state)).toEqual(["succeeded", "cancelled", "succeeded"]);
  });

  it("drops cancelled tasks from the ends of what nobody owns, whichever comes first", async () => {
    const { job, taskRange } = await broker().submitAll(10);
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 1 }] });
    expect(await broker().write({ op: "release", rangeId: taskRange.id })).toEqual({
      op: "release",
      lost: false,
      job: job.id,
      progress: { counters: { succeeded: 0, failed: 0, cancelled: 2 } },
    });
    const more = [
      { first: 4, last: 5 },
      { first: 8, last: 9 },
    ];
    const { progress } = await broker().write({ op: "cancel", job: job.id, ranges: more });
    expect(progress?.counters.cancelled).toBe(4);
    expect((await broker().lease(job.id, 10)).taskRanges).toMatchObject([{ first: 2, last: 7 }]);
  });

  it("ends a job whose last tasks nobody owns", async () => {
    const { job, taskRange } = await broker().submitAll(4);
    await broker().write({ op: "release", rangeId: taskRange.id });
    const { progress } = await broker().write({ op: "cancel", job: job.id, ranges: ALL });
    expect(progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 4 }, ended: "cancelled" });
    expect((await broker().lease(job.id, 10)).taskRanges).toEqual([]);
  });

  it("changes nothing of a job that has ended", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    await broker().settle(await broker().claim(taskRange, 0, 0), [result(0)]);
    const before = await broker().job(job);
    const late = { op: "cancel", job: job.id, ranges: ALL, reason: "too late" } as const;
    expect(await broker().write(late)).toEqual({
      op: "cancel",
      progress: { counters: { succeeded: 1, failed: 0, cancelled: 0 }, ended: "succeeded" },
    });
    expect(await broker().job(job)).toEqual(before);
  });

  it("keeps the reason through a later cancel without one", async () => {
    const { job } = await broker().submit({ count: 10 }, 10);
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 1 }], reason: "too many failed" });
    await broker().write({ op: "cancel", job: job.id, ranges: ALL });
    expect((await broker().job(job)).reason).toBe("too many failed");
  });
}
