import { expect, it } from "vitest";
import type { JobFilter, ResultFilter } from "../../../src/model/store-reads.js";
import { BOB, type Broker, NOW, result } from "./kit.js";

export function describeFilters(broker: () => Broker): void {
  const named = async (filter: JobFilter): Promise<string[]> =>
    (await broker().store.jobs({ limit: 99, filter })).jobs.map(({ name }) => name);

  it("finds jobs by name, where * stands for any text and nothing else does", async () => {
    for (const name of ["sweep 1", "sweep 22", "Sweep 1", "a?b", "axb", "a[x]b", "a%b", "a_b", "a\\b"]) {
      await broker().submit({ name });
    }
    expect(await named({ name: "sweep 1" })).toEqual(["sweep 1"]);
    expect(await named({ name: "sweep*" })).toEqual(["sweep 22", "sweep 1"]);
    expect(await named({ name: "*2*" })).toEqual(["sweep 22"]);
    expect(await named({ name: "s*p*2" })).toEqual(["sweep 22"]);
    expect(await named({ name: "*?*" })).toEqual(["a?b"]);
    expect(await named({ name: "a[x]*" })).toEqual(["a[x]b"]);
    expect(await named({ name: "*%b" })).toEqual(["a%b"]);
    expect(await named({ name: "a_*" })).toEqual(["a_b"]);
    expect(await named({ name: "a\\*" })).toEqual(["a\\b"]);
    expect(await named({ name: "" })).toEqual([]);
  });

  it("answers a pattern at once that would have to be tried in very many ways", async () => {
    await broker().submit({ name: "a".repeat(500) });
    // In any other way than at once it takes longer than anybody waits.
    expect(await named({ name: `${"a*".repeat(200)}b` })).toEqual([]);
  });

  it("finds jobs by pool and by batch key", async () => {
    const gpu = { pool: "gpu", tags: [], needs: { slots: 1 } };
    await broker().submit({ name: "a", requirement: gpu, batchKey: "nightly" });
    await broker().submit({ name: "b", batchKey: "nightly" });
    await broker().submit({ name: "c", requirement: gpu });
    expect(await named({ pool: "gpu" })).toEqual(["c", "a"]);
    expect(await named({ batchKey: "nightly" })).toEqual(["b", "a"]);
    expect(await named({ batchKey: "nightly", pool: "gpu" })).toEqual(["a"]);
    expect(await named({ batchKey: "weekly" })).toEqual([]);
    expect((await broker().store.jobs({ limit: 1, filter: { batchKey: "nightly" } })).jobs).toMatchObject([
      { name: "b", batchKey: "nightly" },
    ]);
  });

  it("finds jobs by how they ended, and those that have not", async () => {
    const b = broker();
    await b.submit({ name: "open" });
    for (const state of ["succeeded", "failed"] as const) {
      const { taskRange } = await b.submitAll(1, { name: state });
      await b.settle(await b.claim(taskRange, 0, 0), [result(0, { state })]);
    }
    const { job } = await b.submit({ name: "cancelled" });
    await b.write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 9 }] });
    expect(await named({ states: ["open"] })).toEqual(["open"]);
    expect(await named({ states: ["failed", "open"] })).toEqual(["failed", "open"]);
    expect(await named({ states: ["succeeded", "cancelled"] })).toEqual(["cancelled", "succeeded"]);
    expect(await named({ states: [] })).toEqual([]);
  });

  it("finds jobs by when they began and ended", async () => {
    const b = broker();
    const submit = async (name: string, at: number): Promise<void> => {
      const { job } = await b.submit({ name });
      const again = await b.job(job);
      expect(again.created).toBe(NOW);
      await b.write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 9 }] }, NOW + at);
    };
    await submit("first", 10);
    await submit("second", 20);
    await b.submit({ name: "open" });
    expect(await named({ endedBefore: NOW + 20 })).toEqual(["first"]);
    expect(await named({ endedBefore: NOW + 21 })).toEqual(["second", "first"]);
    expect(await named({ createdFrom: NOW, createdBefore: NOW + 1, states: ["open"] })).toEqual(["open"]);
    expect(await named({ createdFrom: NOW + 1 })).toEqual([]);
    expect(await named({ createdBefore: NOW })).toEqual([]);
  });

  it("pages through what a filter leaves", async () => {
    for (const name of ["x1", "y", "x2", "y", "x3", "y"]) await broker().submit({ name });
    const filter = { name: "x*" };
    const first = await broker().store.jobs({ limit: 2, filter });
    expect(first.jobs.map(({ name }) => name)).toEqual(["x3", "x2"]);
    if (first.next === undefined) throw new Error("there is a second page");
    const second = await broker().store.jobs({ limit: 2, filter, before: first.next });
    expect(second.jobs.map(({ name }) => name)).toEqual(["x1"]);
    expect(second).not.toHaveProperty("next");
  });

  it("finds results by how they ended and by worker, page by page", async () => {
    const b = broker();
    const { job, taskRange } = await b.submitAll(12);
    const out = await b.claim(taskRange, 0, 11);
    const states = ["succeeded", "failed", "succeeded", "cancelled"] as const;
    await b.settle(
      out,
      Array.from({ length: 12 }, (_, i) =>
        result(i, { state: states[i % 4] ?? "failed", worker: i % 3 === 0 ? BOB : "ann" }),
      ),
    );
    const found = async (filter: ResultFilter): Promise<number[]> => {
      const indices: number[] = [];
      for (let from: number | undefined = 0; from !== undefined; ) {
        const page = await b.store.results(job.id, { from, limit: 2, filter });
        indices.push(...page.results.map(({ index }) => index));
        from = page.next;
      }
      return indices;
    };
    expect(await found({ states: ["failed"] })).toEqual([1, 5, 9]);
    expect(await found({ states: ["failed", "cancelled"] })).toEqual([1, 3, 5, 7, 9, 11]);
    expect(await found({ states: ["cancelled", "succeeded"], worker: BOB })).toEqual([0, 3, 6]);
    expect(await found({ worker: BOB })).toEqual([0, 3, 6, 9]);
    expect(await found({ worker: "nobody" })).toEqual([]);
    expect(await found({ states: [] })).toEqual([]);
  });
}
