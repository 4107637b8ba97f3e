import { expect, it } from "vitest";
import { type Broker, NOW, results } from "./kit.js";

export function describeEdit(broker: () => Broker): void {
  it("changes what is named and keeps the rest", async () => {
    const { job } = await broker().submit({ count: 3, limits: { retries: 2, crashLimit: 1, outputCap: 5 } });
    const changes = { name: "größer", priority: 7, maxRunning: 2 };
    const edited = await broker().write({ op: "edit", job: job.id, changes });
    const limits = { retries: 2, crashLimit: 1, outputCap: 5, maxRunning: 2 };
    expect(edited).toEqual({ op: "edit", job: { ...job, name: "größer", priority: 7, limits } });
    await broker().write({ op: "edit", job: job.id, changes: { timeLimitMs: 9 } });
    expect(await broker().job(job)).toEqual({ ...edited.job, limits: { ...limits, timeLimitMs: 9 } });
    const named = await broker().store.jobs({ limit: 10, filter: { name: "größer" } });
    expect(named.jobs.map(({ id }) => id)).toEqual([job.id]);
  });

  it("adds tasks with their entries to an open job, which ends when it is closed", async () => {
    const { job } = await broker().submit({ open: true, count: 0 }, 0, []);
    expect((await broker().job(job))?.ended).toBeUndefined();
    const entries = Array.from({ length: 2_500 }, (_, i) => `entry ${i}`);
    const add = (at: number, last: number) => ({ at, count: last - at, entries: entries.slice(at, last) });
    await broker().write({ op: "edit", job: job.id, append: add(0, 3) });
    const [first] = (await broker().lease(job.id, 10)).taskRanges;
    if (first === undefined) throw new Error("nothing was granted");
    await broker().settle(await broker().claim(first, 0, 2), results(0, 2));
    expect(await broker().job(job)).toMatchObject({ count: 3, counters: { succeeded: 3 } });
    expect((await broker().job(job))?.ended).toBeUndefined();
    await broker().write({ op: "edit", job: job.id, append: add(3, 2_500) });
    expect(await broker().store.entries(job.id, { first: 1, last: 2_400 })).toEqual(entries.slice(1, 2_401));
    const { taskRanges, mayLease } = await broker().lease(job.id, 5_000);
    expect([taskRanges, mayLease]).toMatchObject([[{ first: 3, last: 2_499 }], false]);
    const [rest] = taskRanges;
    if (rest === undefined) throw new Error("nothing was granted");
    const claimed = await broker().write({
      ...{ op: "claim", from: rest.id, rangeId: rest.id, first: 3, last: 2_499, attempt: 1 },
      worker: "ann" as never,
    });
    expect(claimed.entries).toEqual(entries.slice(3));
    await broker().settle(rest, results(3, 2_499));
    const closed = await broker().write({ op: "edit", job: job.id, close: true }, NOW + 9);
    const counters = { succeeded: 2_500, failed: 0, cancelled: 0 };
    expect(closed.progress).toEqual({ counters, ended: "succeeded" });
    expect(closed.job).toMatchObject({ count: 2_500, ended: { at: NOW + 9, state: "succeeded" } });
    expect(closed.job).not.toHaveProperty("open");
  });

  it("refuses tasks for a job that is closed, has ended, or has other tasks than were expected", async () => {
    const { job } = await broker().submit({ count: 2, open: true });
    const append = { at: 1, count: 1 };
    expect(await broker().write({ op: "edit", job: job.id, append })).toMatchObject({ refused: "count" });
    await broker().write({ op: "edit", job: job.id, close: true });
    expect(await broker().write({ op: "edit", job: job.id, append })).toMatchObject({ refused: "closed" });
    await broker().write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 1 }] });
    const changes = { priority: 3 };
    expect(await broker().write({ op: "edit", job: job.id, changes })).toMatchObject({ refused: "ended" });
    expect(await broker().job(job)).toMatchObject({ count: 2, priority: 0 });
    expect(await broker().write({ op: "edit", job: 99 as never, changes })).toEqual({ op: "edit" });
  });

  it("closes an open job with a cancel of all its tasks, and not with one of those it has", async () => {
    const { job } = await broker().submit({ count: 2, open: true });
    const cancel = { op: "cancel", job: job.id } as const;
    const some = await broker().write({ ...cancel, ranges: [{ first: 0, last: 1 }] });
    expect(some.progress).toEqual({ counters: { succeeded: 0, failed: 0, cancelled: 2 } });
    const all = await broker().write({ ...cancel, ranges: [{ first: 0, last: 2 }] });
    expect(all.progress?.ended).toBe("cancelled");
  });
}
