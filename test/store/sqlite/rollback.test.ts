import { expect, it } from "vitest";
import { Broker, newRangeId, request, results } from "../suite/kit.js";
import { sqliteHarness } from "./harness.js";

it("undoes the whole of a batch whose last write is refused, and goes on", async () => {
  const { handle, dispose } = await sqliteHarness();
  const broker = await Broker.at(handle());
  const { job, taskRange } = await broker.submitAll(40);
  const out = await broker.claim(taskRange, 0, 19);
  const before = await broker.store.jobs({ limit: 9 });
  const good = [
    { op: "settle", job: job.id, rangeId: out.id, results: results(0, 19, { worker: "new here" }), empty: true },
    { op: "cancel", job: job.id, ranges: [{ first: 30, last: 39 }] },
    { op: "submit", job: request(), entries: ["a"], lease: 1, rangeId: newRangeId() },
  ] as const;
  const taken = { op: "submit", job: request(), lease: 1, rangeId: taskRange.id } as const;
  await expect(broker.store.commit([...good, taken], 1)).rejects.toMatchObject({ code: "LABORO_INTERNAL" });
  expect(await broker.store.jobs({ limit: 9 })).toEqual(before);
  expect((await broker.store.results(job.id, { from: 0, limit: 9 })).results).toEqual([]);
  const [settled] = await broker.store.commit(good, 1);
  expect(settled).toMatchObject({ lost: false, progress: { counters: { succeeded: 20 } } });
  expect((await broker.store.results(job.id, { from: 0, limit: 99 })).results).toEqual(good[0].results);
  await broker.store.close();
  await dispose();
});
