import { expect, it } from "vitest";
import type { JobSpec } from "../../../src/model/job.js";
import type { Write, WriteResult } from "../../../src/model/store.js";
import { type Broker, NOW, newRangeId, request, result } from "./kit.js";

const submission = (over: Partial<JobSpec>): Write => ({
  op: "submit",
  job: request({ count: 1, ...over }),
  lease: 0,
  rangeId: newRangeId(),
});

export function describeDelays(broker: () => Broker): void {
  const promote = async (clock: number, steady: number, max = 100): Promise<number[]> =>
    (await broker().write({ op: "promote", clock, steady, max })).jobs.map(({ id }) => id);

  it("keeps a delayed job apart until its time has come, by the clock that it asked for", async () => {
    const { job: at } = await broker().submit({ count: 1, notBefore: NOW + 50 });
    const { job: after } = await broker().submit({ count: 1, notBefore: NOW + 20, delayMs: 20 });
    expect(at.delayed).toBe(true);
    expect(await broker().job(at)).toEqual(at);
    expect(await broker().store.nextDelayed()).toEqual({ clock: NOW + 50, steady: NOW + 20 });
    expect(await broker().store.delayedCount()).toBe(2);
    expect((await broker().store.jobs({ limit: 9, filter: { states: ["open"] } })).jobs.length).toBe(2);
    expect(await promote(NOW + 49, NOW + 19)).toEqual([]);
    // The other clock does not count.
    expect(await promote(NOW + 20, NOW + 19)).toEqual([]);
    expect(await promote(NOW + 49, NOW + 50)).toEqual([after.id]);
    expect(await broker().store.delayedCount()).toBe(1);
    expect(await promote(NOW + 50, NOW)).toEqual([at.id]);
    expect(await broker().job(at)).not.toHaveProperty("delayed");
    expect(await broker().store.nextDelayed()).toEqual({});
  });

  it("promotes the earliest first, as many as are asked for", async () => {
    const jobs: number[] = [];
    for (const ms of [30, 10, 20]) jobs.push((await broker().submit({ count: 1, notBefore: NOW + ms })).job.id);
    expect(await promote(NOW + 99, NOW, 2)).toEqual([jobs[1], jobs[2]]);
    expect(await promote(NOW + 99, NOW, 2)).toEqual([jobs[0]]);
  });

  it("does not promote what was cancelled, and runs at once what is run again", async () => {
    const { job } = await broker().submit({ count: 2, notBefore: NOW + 10 });
    const all = [{ first: 0, last: 1 }];
    expect((await broker().write({ op: "cancel", job: job.id, ranges: all })).progress?.ended).toBe("cancelled");
    expect(await broker().store.nextDelayed()).toEqual({});
    expect(await promote(NOW + 10, NOW)).toEqual([]);
    const again = await broker().rerun(job.id, ["cancelled"]);
    expect(again).toMatchObject({ count: 2, job: { notBefore: NOW + 10 } });
    expect(again.job).not.toHaveProperty("delayed");
  });

  it("leaves a delayed job that waits for others among the open ones", async () => {
    const { job: other } = await broker().submit({ count: 1 });
    const { job } = await broker().submit({ count: 1, notBefore: NOW + 10, after: [{ job: other.id, any: true }] });
    expect(job).not.toHaveProperty("delayed");
    expect(await promote(NOW + 10, NOW + 10)).toEqual([]);
  });
}

export function describeKeys(broker: () => Broker): void {
  const commit = async (writes: readonly Write[], now = NOW): Promise<readonly WriteResult[]> =>
    broker().store.commit(writes, now);
  const made = async (over: Partial<JobSpec> = {}, now = NOW): Promise<number> => {
    const [answer] = await commit([submission({ key: "k", ...over })], now);
    if (answer?.op !== "submit") throw new Error(`no job was made: ${JSON.stringify(answer)}`);
    return answer.job.id;
  };

  it("gives a key to one open job, in one batch or later", async () => {
    const [first, second] = await commit([submission({ key: "k" }), submission({ key: "k" })]);
    if (first?.op !== "submit") throw new Error("no job was made");
    const taken = { op: "duplicate", job: first.job.id, byKey: true };
    expect(second).toEqual(taken);
    expect(await commit([submission({ key: "k", ifExists: "refuse" })])).toEqual([taken]);
    expect(await commit([submission({ key: "other" }), submission({ key: "K" })])).toMatchObject([
      { op: "submit" },
      { op: "submit" },
    ]);
    expect((await broker().store.jobs({ limit: 9, filter: { key: "k" } })).jobs.map(({ id }) => id)).toEqual([
      first.job.id,
    ]);
  });

  it("frees a key with the end of its job, also within a batch", async () => {
    const { job, taskRange } = await broker().submitAll(1, { key: "k" });
    const out = await broker().claim(taskRange, 0, 0);
    const end: Write = { op: "settle", job: job.id, rangeId: out.id, results: [result(0)], empty: true };
    const [before, , after] = await commit([submission({ key: "k" }), end, submission({ key: "k" })]);
    expect(before).toMatchObject({ op: "duplicate", job: job.id });
    expect(after).toMatchObject({ op: "submit" });
  });

  it("leaves a key with a job for a time after its end", async () => {
    const { job, taskRange } = await broker().submitAll(1, { key: "k", keyForMs: 100 });
    await broker().settle(await broker().claim(taskRange, 0, 0), [result(0)]);
    const [early] = await commit([submission({ key: "k", ifExists: "refuse" })], NOW + 99);
    expect(early).toEqual({ op: "duplicate", job: job.id, byKey: true });
    expect(await made({}, NOW + 100)).toBeGreaterThan(job.id);
  });

  it("replaces the job that has the key, which is cancelled with the reason", async () => {
    const { job: running, taskRange } = await broker().submitAll(2, { key: "k" });
    const out = await broker().claim(taskRange, 0, 0);
    const [second] = await commit([submission({ key: "k", ifExists: "replace" })]);
    expect(second).toMatchObject({
      op: "submit",
      replaced: { job: running.id, progress: { counters: { cancelled: 0 } } },
    });
    if (second?.op !== "submit") throw new Error("no job was made");
    expect(await broker().job(running)).toMatchObject({
      cancels: [{ first: 0, last: 1 }],
      reason: `replaced by job ${second.job.id}`,
    });
    // Its late result counts as cancelled, and it does not get the key back.
    await broker().settle(out, [result(0)]);
    const [third] = await commit([submission({ key: "k", ifExists: "replace" })]);
    expect(third).toMatchObject({ op: "submit", replaced: { job: second.job.id, progress: { ended: "cancelled" } } });
  });

  it("makes no second job of a repeated submission that replaces", async () => {
    const first = await made();
    const once = submission({ key: "k", ifExists: "replace", idempotencyKey: "once" });
    const [replacing] = await commit([once]);
    expect(replacing).toMatchObject({ op: "submit", replaced: { job: first } });
    if (replacing?.op !== "submit") throw new Error("no job was made");
    expect(await commit([{ ...once, rangeId: newRangeId() } as Write])).toEqual([
      { op: "duplicate", job: replacing.job.id },
    ]);
    expect((await broker().job(replacing.job)).cancels).toEqual([]);
  });

  it("refuses to run a job again while another has its key", async () => {
    const { job, taskRange } = await broker().submitAll(1, { key: "k" });
    await broker().settle(await broker().claim(taskRange, 0, 0), [result(0, { state: "failed", code: 1 })]);
    const other = await made();
    expect(await broker().rerun(job.id, ["failed"])).toMatchObject({
      count: 0,
      refused: `job ${other} has the key of this one: cancel it, or wait for its end`,
    });
    await broker().write({
      op: "cancel",
      job: (await broker().job({ id: other as never })).id,
      ranges: [{ first: 0, last: 0 }],
    });
    expect((await broker().rerun(job.id, ["failed"])).count).toBe(1);
    expect(await commit([submission({ key: "k" })])).toEqual([{ op: "duplicate", job: job.id, byKey: true }]);
  });
}

export function describeKeep(broker: () => Broker): void {
  const ended = async (state: "succeeded" | "failed", over: Partial<JobSpec>): Promise<number> => {
    const { job, taskRange } = await broker().submitAll(1, over);
    await broker().settle(await broker().claim(taskRange, 0, 0), [result(0, { state })]);
    return job.id;
  };
  const expired = async (ms: number, keep = {}, limit = 99): Promise<number[]> =>
    [...(await broker().store.expiredJobs(NOW + ms, keep, limit))].sort((a, b) => a - b);

  it("finds jobs whose own time is over, by how they ended", async () => {
    const short = await ended("succeeded", { keepMs: 10 });
    const long = await ended("failed", { keepMs: 10, keepFailedMs: 50 });
    const same = await ended("failed", { keepMs: 20 });
    await broker().submit({ count: 1, keepMs: 0 });
    expect(await expired(9)).toEqual([]);
    expect(await expired(10)).toEqual([short]);
    expect(await expired(49)).toEqual([short, same]);
    expect(await expired(50)).toEqual([short, long, same]);
    expect(await expired(50, {}, 2)).toHaveLength(2);
  });

  it("takes the times given for jobs that have none", async () => {
    const usual = await ended("succeeded", {});
    const failed = await ended("failed", {});
    const own = await ended("succeeded", { keepMs: 99 });
    const half = await ended("succeeded", { keepFailedMs: 99 });
    expect(await expired(1_000)).toEqual([own]);
    expect(await expired(10, { keepMs: 10 })).toEqual([usual, failed, half]);
    expect(await expired(10, { keepMs: 10, keepFailedMs: 20 })).toEqual([usual, half]);
    expect(await expired(99, { keepFailedMs: 20 })).toEqual([failed, own]);
  });

  it("keeps a job for as long as it has its key", async () => {
    const job = await ended("succeeded", { keepMs: 0, key: "k", keyForMs: 100 });
    const usual = await ended("succeeded", { key: "other", keyForMs: 100 });
    expect(await expired(99, { keepMs: 0 })).toEqual([]);
    expect(await expired(100, { keepMs: 0 })).toEqual([job, usual]);
  });
}
