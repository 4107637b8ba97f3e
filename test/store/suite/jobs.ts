import { expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import type { Write } from "../../../src/model/store.js";
import { ANN, type Broker, NOW, newRangeId, none, request, result } from "./kit.js";

const HALT = { on: "success", count: 2, now: true } as const;

export function describeJobs(broker: () => Broker): void {
  it("gives back a job as it was asked for, bytes and all", async () => {
    const asked = request({
      name: "größer",
      recipe: {
        kind: "command",
        argv: ["convert", Uint8Array.of(0xff, 0x00, 0x41)],
        placeholders: true,
        env: { PATH: "/bin" },
        stdin: Uint8Array.of(1, 2, 3),
      },
      requirement: { pool: "gpu", tags: ["a", "b"], needs: { slots: 2, gpu: 1 } },
      count: 3,
      priority: -7,
      limits: { retries: 2, crashLimit: 1, maxRunning: 4, timeLimitMs: 90_000, outputCap: 1024, halt: HALT },
      after: [{ job: JobId(1), any: true }],
      held: true,
      batchKey: "nightly",
      key: "one",
      keyForMs: 5,
      keepMs: 1,
      keepFailedMs: 2,
      numbers: [
        { first: 7, last: 8, step: 1 },
        { first: 12, last: 12, step: 1 },
      ],
      resumes: JobId(1),
    });
    const { job } = await broker().submit(asked);
    expect(job).toEqual({
      ...asked,
      id: job.id,
      created: job.created,
      hasEntries: false,
      cursor: 0,
      cancels: [],
      counters: none,
    });
    expect(await broker().store.job(job.id)).toEqual(job);
  });

  it("grants the first tasks with the submission, and no more than there are", async () => {
    const some = await broker().submit({ count: 10 }, 4);
    expect(some.taskRange).toMatchObject({ job: some.job.id, first: 0, last: 3, attempt: 0, failures: 0, crashes: 0 });
    expect(some.job.cursor).toBe(4);
    const all = await broker().submit({ count: 3 }, 100);
    expect(all.taskRange).toMatchObject({ first: 0, last: 2, notBefore: 0 });
    const nothing = await broker().submit({ count: 3 }, 0);
    expect(nothing).not.toHaveProperty("task range");
  });

  it("ends a job without tasks at once", async () => {
    const { job } = await broker().submit({ count: 0 }, 5);
    expect(job.ended?.state).toBe("succeeded");
    expect(await broker().store.job(job.id)).toEqual(job);
  });

  it("makes one job of submissions with the same idempotency key, in one batch or later, for as long as it is kept", async () => {
    const { store } = broker();
    const submission = (): Write => ({
      op: "submit",
      job: request({ count: 2, idempotencyKey: "once" }),
      entries: ["a", "b"],
      lease: 2,
      rangeId: newRangeId(),
    });
    const [made, again] = await store.commit([submission(), submission()], NOW);
    if (made?.op !== "submit") throw new Error("no job was made");
    const duplicate = { op: "duplicate", job: made.job.id };
    expect(again).toEqual(duplicate);
    const late = submission();
    const claim = { op: "claim", from: "rangeId" in late ? late.rangeId : newRangeId(), first: 0, last: 0 } as const;
    expect(await store.commit([late, { ...claim, rangeId: newRangeId(), attempt: 1, worker: ANN }], NOW)).toMatchObject(
      [duplicate, { op: "claim", lost: true }],
    );
    const { job: other } = await broker().submit({ idempotencyKey: "another" });
    const filter = { idempotencyKey: "once" };
    expect((await store.jobs({ limit: 9, filter })).jobs.map(({ id }) => id)).toEqual([made.job.id]);
    expect((await store.jobs({ limit: 9 })).jobs.map(({ id }) => id)).toEqual([other.id, made.job.id]);
    expect(await store.entries(made.job.id, { first: 0, last: 1 })).toEqual(["a", "b"]);
    const { job: ended } = await broker().submit({ count: 0, idempotencyKey: "removed" });
    await broker().write({ op: "remove", job: ended.id });
    expect((await broker().submit({ count: 0, idempotencyKey: "removed" })).job.id).not.toBe(ended.id);
  });

  it("knows nothing of a job that was never submitted", async () => {
    const { store } = broker();
    const stranger = JobId(4711);
    expect(await store.job(stranger)).toBeUndefined();
    expect(await store.results(stranger, { from: 0, limit: 10 })).toEqual({ results: [] });
    expect(await store.entries(stranger, { first: 0, last: 3 })).toEqual([]);
    expect(await broker().write({ op: "hold", job: stranger, held: true })).toEqual({ op: "hold", found: false });
    expect(await broker().write({ op: "cancel", job: stranger, ranges: [{ first: 0, last: 1 }] })).toEqual({
      op: "cancel",
    });
    expect(await broker().lease(stranger, 5)).toEqual({ op: "lease", job: stranger, taskRanges: [], mayLease: false });
  });

  it("lists jobs newest first, page by page", async () => {
    const ids: number[] = [];
    for (let i = 0; i < 5; i++) ids.unshift((await broker().submit()).job.id);
    const first = await broker().store.jobs({ limit: 2 });
    expect(first.jobs.map(({ id }) => id)).toEqual(ids.slice(0, 2));
    if (first.next === undefined) throw new Error("there is a second page");
    const second = await broker().store.jobs({ limit: 3, before: first.next });
    expect(second.jobs.map(({ id }) => id)).toEqual(ids.slice(2, 5));
    expect(second).not.toHaveProperty("next");
  });

  it("holds a job and lets it go", async () => {
    const { job } = await broker().submit();
    expect(await broker().write({ op: "hold", job: job.id, held: true })).toEqual({ op: "hold", found: true });
    expect((await broker().job(job)).held).toBe(true);
    await broker().write({ op: "hold", job: job.id, held: false });
    expect((await broker().job(job)).held).toBe(false);
  });

  it("keeps entries of text and bytes, and reads any stretch of them", async () => {
    const entries = Array.from({ length: 2500 }, (_, i) =>
      i % 7 === 0 ? Uint8Array.of(i & 255, 0xff, 0) : `${i} ü ${"x".repeat(i % 50)}`,
    );
    const { job } = await broker().submit({}, 0, entries);
    expect(job.hasEntries).toBe(true);
    const { store } = broker();
    for (const [first, last] of [
      [0, 0],
      [990, 1010],
      [2499, 2499],
      [0, 2499],
      [1000, 1999],
      [2400, 9999],
    ] as const) {
      expect(await store.entries(job.id, { first, last })).toEqual(entries.slice(first, last + 1));
    }
  });

  it("gives the entries of tasks with their claim", async () => {
    const entries = ["a", Uint8Array.of(0, 255), "c", "d"];
    const { taskRange } = await broker().submit({ count: 4 }, 4, entries);
    if (taskRange === undefined) throw new Error("no task range was granted");
    const claim = { op: "claim", from: taskRange.id, rangeId: newRangeId(), attempt: 1, worker: ANN } as const;
    expect(await broker().write({ ...claim, first: 0, last: 1 })).toEqual({
      op: "claim",
      lost: false,
      entries: entries.slice(0, 2),
    });
    const rest = { ...claim, rangeId: newRangeId(), first: 2, last: 3 };
    expect(await broker().write(rest)).toEqual({ op: "claim", lost: false, entries: ["c", "d"] });
  });

  it("keeps an entry larger than a chunk, and an empty one", async () => {
    const entries = ["", "y".repeat(700_000), "", new Uint8Array(0), "z"];
    const { job } = await broker().submit({}, 0, entries);
    expect(await broker().store.entries(job.id, { first: 0, last: 4 })).toEqual(entries);
    expect(await broker().store.entries(job.id, { first: 1, last: 1 })).toEqual([entries[1]]);
  });

  it("applies a batch in order: what one write made the next can use", async () => {
    const { job } = await broker().submit({ count: 4 }, 0);
    const [lent, out] = [newRangeId(), newRangeId()];
    const answers = await broker().store.commit(
      [
        { op: "lease", job: job.id, max: 4, rangeId: lent },
        { op: "claim", from: lent, rangeId: out, first: 0, last: 3, attempt: 1, worker: ANN },
        { op: "settle", job: job.id, rangeId: out, results: [0, 1, 2, 3].map((index) => result(index)), empty: true },
        { op: "settle", job: job.id, rangeId: out, results: [], empty: true },
      ],
      5,
    );
    expect(answers.map((answer) => ("lost" in answer ? answer.lost : answer.op))).toEqual([
      "lease",
      false,
      false,
      true,
    ]);
    expect((await broker().job(job)).ended).toEqual({ at: 5, state: "succeeded" });
  });
}
