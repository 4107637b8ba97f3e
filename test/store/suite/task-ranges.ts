import { expect, it } from "vitest";
import { TaskRangeId } from "../../../src/model/ids.js";
import type { JobSpec } from "../../../src/model/job.js";
import { ANN, BOB, type Broker, NOW, newRangeId, request, result, results, waiting } from "./kit.js";

export function describeTaskRanges(broker: () => Broker): void {
  it("leases from the cursor until the job is used up", async () => {
    const { job } = await broker().submit({ count: 10 }, 2);
    const first = await broker().lease(job.id, 5);
    expect(first.taskRanges).toMatchObject([{ job: job.id, first: 2, last: 6, attempt: 0 }]);
    expect(first.mayLease).toBe(true);
    const second = await broker().lease(job.id, 5);
    expect(second.taskRanges).toMatchObject([{ first: 7, last: 9 }]);
    expect(second.mayLease).toBe(false);
    expect(await broker().lease(job.id, 5)).toEqual({ op: "lease", job: job.id, taskRanges: [], mayLease: false });
    expect((await broker().job(job)).cursor).toBe(10);
  });

  it("claims all tasks, or some, of jobs that are submitted in the same batch, and loses claims of jobs that were there before", async () => {
    const before = await broker().submit({ count: 1, idempotencyKey: "twice" }, 1);
    const submit = (over: Partial<JobSpec>, entries: string[]) => {
      const job = request({ ...over, count: entries.length });
      return { op: "submit" as const, job, lease: entries.length, rangeId: newRangeId(), entries };
    };
    const claim = (from: TaskRangeId, last: number, worker = ANN) =>
      ({ op: "claim", from, rangeId: newRangeId(), first: 0, last, attempt: 1, worker }) as const;
    const [whole, part, again] = [
      submit({}, ["a"]),
      submit({}, ["b", "c"]),
      submit({ idempotencyKey: "twice" }, ["d"]),
    ];
    const claims = [claim(whole.rangeId, 0), claim(part.rangeId, 0, BOB), claim(again.rangeId, 0)] as const;
    const answers = await broker().store.commit([whole, part, again, ...claims], NOW);
    expect(answers).toMatchObject([
      { op: "submit", taskRange: { id: whole.rangeId, first: 0, last: 0, attempt: 0 } },
      { op: "submit", taskRange: { id: part.rangeId, first: 0, last: 1, attempt: 0 } },
      { op: "duplicate", job: before.job.id },
      { op: "claim", lost: false, entries: ["a"] },
      { op: "claim", lost: false, entries: ["b"] },
      { op: "claim", lost: true },
    ]);
    const [made] = answers;
    if (made?.op !== "submit") throw new Error("it was not made");
    const { rangeId } = claims[0];
    const settled = { op: "settle", job: made.job.id, rangeId, results: [result(0)], empty: true } as const;
    expect(await broker().write(settled)).toMatchObject({ lost: false, progress: { ended: "succeeded" } });
    expect(await broker().write({ op: "release", rangeId: whole.rangeId })).toMatchObject({ lost: true });
    expect(await broker().write({ op: "release", rangeId: part.rangeId })).toMatchObject({ lost: false });
  });

  it("leases given-back task ranges that are due before the cursor, in task order", async () => {
    const { job, taskRange } = await broker().submit({ count: 10 }, 6);
    if (taskRange === undefined) throw new Error("no task range was granted");
    const [later, due, soon] = [
      waiting(taskRange, { first: 0, last: 1, notBefore: NOW + 1000, waitMs: 1000 }),
      waiting(taskRange, { first: 2, last: 3, attempt: 2, failures: 1, avoid: BOB }),
      waiting(taskRange, { first: 4, last: 5, crashes: 1, notBefore: NOW }),
    ] as const;
    await broker().replace(taskRange, [soon, due, later]);
    for (const { id } of [soon, later, due]) {
      expect(await broker().write({ op: "release", rangeId: id })).toEqual({ op: "release", lost: false });
    }
    const early = await broker().lease(job.id, 5);
    expect(early.taskRanges).toEqual([due, soon, expect.objectContaining({ first: 6, last: 6, attempt: 0 })]);
    expect(early.mayLease).toBe(true);
    expect((await broker().lease(job.id, 100)).taskRanges).toMatchObject([{ first: 7, last: 9 }]);
    expect((await broker().lease(job.id, 100)).mayLease).toBe(false);
    expect((await broker().lease(job.id, 100, NOW + 1000)).taskRanges).toEqual([later]);
  });

  it("leases tasks of many jobs in one batch, of each what it would get alone", async () => {
    const fresh = await broker().submit({ count: 10 }, 2);
    const released = await broker().submitAll(6);
    await broker().write({ op: "release", rangeId: released.taskRange.id });
    const ended = await broker().submit({ count: 0 });
    const small = await Promise.all(Array.from({ length: 50 }, () => broker().submit({ count: 1 })));
    const jobs = [small[7], fresh, released, ended, ...small.filter((_, i) => i !== 7)].flatMap(
      (one) => one?.job.id ?? [],
    );
    const leases = jobs.map((job) => ({ op: "lease" as const, job, max: 4, rangeId: newRangeId() }));
    const answers = await broker().store.commit(leases, NOW);
    const one = (at: number): object => ({ taskRanges: [{ job: jobs[at], first: 0, last: 0 }], mayLease: false });
    expect(answers).toMatchObject([
      one(0),
      { taskRanges: [{ id: leases[1]?.rangeId, first: 2, last: 5 }], mayLease: true },
      { taskRanges: [{ id: leases[2]?.rangeId, first: 0, last: 3 }], mayLease: true },
      { op: "lease", job: ended.job.id, taskRanges: [], mayLease: false },
      ...leases.slice(4).map((_, i) => one(i + 4)),
    ]);
  });

  it("leases a given-back task range that would wait longer than it was to: the clock was set back", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const later = waiting(taskRange, { first: 0, last: 1, notBefore: NOW + 86_400_000, waitMs: 5000 });
    await broker().replace(taskRange, [later]);
    await broker().write({ op: "release", rangeId: later.id });
    expect((await broker().lease(job.id, 5, NOW + 86_400_000 - 5000)).taskRanges).toEqual([]);
    expect((await broker().lease(job.id, 5)).taskRanges).toEqual([later]);
  });

  it("splits a given-back task range that is larger than the lease", async () => {
    const { job, taskRange } = await broker().submitAll(10);
    await broker().write({ op: "release", rangeId: taskRange.id });
    const lent = newRangeId();
    const part = await broker().write({ op: "lease", job: job.id, max: 4, rangeId: lent });
    expect(part.taskRanges).toEqual([{ ...taskRange, id: lent, last: 3 }]);
    expect(part.mayLease).toBe(true);
    expect((await broker().lease(job.id, 100)).taskRanges).toEqual([{ ...taskRange, first: 4 }]);
  });

  it("claims from either end of a task range and all of the rest", async () => {
    const { taskRange } = await broker().submitAll(10);
    await broker().claim(taskRange, 0, 2);
    await broker().claim(taskRange, 8, 9, BOB);
    await broker().claim(taskRange, 3, 7);
    const gone = {
      op: "claim",
      from: taskRange.id,
      rangeId: newRangeId(),
      first: 3,
      last: 3,
      attempt: 1,
      worker: ANN,
    } as const;
    expect(await broker().write(gone)).toEqual({ op: "claim", lost: true });
  });

  it("refuses a claim of tasks that another claim has, or that are with a worker", async () => {
    const { taskRange } = await broker().submitAll(10);
    const out = await broker().claim(taskRange, 0, 4);
    const claim = { op: "claim", attempt: 1, worker: BOB } as const;
    const again = { ...claim, from: taskRange.id, rangeId: newRangeId(), first: 4, last: 6 };
    expect(await broker().write(again)).toEqual({ op: "claim", lost: true });
    const fromWorker = { ...claim, from: out.id, rangeId: newRangeId(), first: 0, last: 1 };
    expect(await broker().write(fromWorker)).toEqual({ op: "claim", lost: true });
  });

  it("answers lost for a task range that is not there, and changes nothing", async () => {
    const { job, taskRange } = await broker().submitAll(3);
    const nowhere = { ...taskRange, id: TaskRangeId(99_999_999) };
    expect(await broker().settle(nowhere, results(0, 2))).toEqual({ op: "settle", lost: true });
    expect(await broker().settle(nowhere, results(0, 2), false)).toEqual({ op: "settle", lost: true });
    const pieces = [waiting(taskRange)];
    expect(await broker().replace(nowhere, pieces, { earlierAttempts: [result(0)], cancelled: 3 })).toEqual({
      op: "replace",
      lost: true,
    });
    expect(await broker().write({ op: "release", rangeId: nowhere.id })).toEqual({ op: "release", lost: true });
    expect((await broker().store.results(job.id, { from: 0, limit: 10 })).results).toEqual([]);
    expect(await broker().store.earlierAttempts(job.id, 0)).toEqual([]);
    expect((await broker().job(job)).counters).toEqual({ succeeded: 0, failed: 0, cancelled: 0 });
    await broker().claim(taskRange, 0, 2);
  });

  it("does not give back what a worker has", async () => {
    const { taskRange } = await broker().submitAll(3);
    const out = await broker().claim(taskRange, 0, 2);
    expect(await broker().write({ op: "release", rangeId: out.id })).toEqual({ op: "release", lost: true });
  });

  it("no longer owns what it gave back", async () => {
    const { taskRange } = await broker().submitAll(3);
    await broker().write({ op: "release", rangeId: taskRange.id });
    expect(await broker().write({ op: "release", rangeId: taskRange.id })).toEqual({ op: "release", lost: true });
    const claim = {
      op: "claim",
      from: taskRange.id,
      rangeId: newRangeId(),
      first: 0,
      last: 2,
      attempt: 1,
      worker: ANN,
    } as const;
    expect(await broker().write(claim)).toEqual({ op: "claim", lost: true });
  });

  it("puts pieces in the place of a task range, also under its own id", async () => {
    const { job, taskRange } = await broker().submitAll(6);
    const out = await broker().claim(taskRange, 0, 5);
    await broker().settle(out, results(0, 1), false);
    const back = waiting(out, { first: 4, last: 5, failures: 1, avoid: ANN });
    const answer = await broker().replace(out, [{ ...out, first: 2, last: 3 }, back]);
    expect(answer).toEqual({
      op: "replace",
      lost: false,
      progress: { counters: { succeeded: 2, failed: 0, cancelled: 0 } },
    });
    const retried = await broker().claim(back, 4, 5, BOB, 2);
    expect((await broker().settle(out, results(2, 3))).lost).toBe(false);
    const last = await broker().settle(retried, results(4, 5, { attempt: 2, worker: BOB }));
    expect(last.progress?.ended).toBe("succeeded");
    expect((await broker().job(job)).ended?.state).toBe("succeeded");
  });
}
