/** What brokers hear of each other. */
import { afterEach, beforeEach, expect, it } from "vitest";
import type { JobId } from "../../../src/model/ids.js";
import { until } from "../../support/wait.js";
import { Broker, NOW, result } from "../suite/kit.js";
import { addSchedule } from "../suite/schedules.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

interface Hint {
  readonly job?: JobId;
  readonly bucket?: string;
}

let harness: DatabaseHarness;
let first: Broker;
let second: Broker;
let heard: Hint[];

beforeEach(async () => {
  harness = await postgresHarness();
  first = await Broker.at(harness.handle());
  second = await Broker.at(harness.handle());
  heard = [];
  second.store.group?.listen((hint) => heard.push(hint));
});

afterEach(async () => {
  await first.store.close();
  await second.store.close();
  await harness.dispose();
});

const hears = (what: string, wanted: Hint): Promise<true> =>
  until(
    what,
    () => heard.some(({ job, bucket }) => job === wanted.job && bucket === wanted.bucket) || undefined,
    30_000,
  );

it("tells of a job that is added, held, cancelled, given back, ended, run again and removed", async () => {
  const { job, taskRange } = await first.submitAll(2);
  await hears("added", { job: job.id });
  const steps: readonly (readonly [string, () => Promise<unknown>])[] = [
    ["held", () => first.write({ op: "hold", job: job.id, held: true })],
    ["cancelled", () => first.write({ op: "cancel", job: job.id, ranges: [{ first: 1, last: 1 }] })],
    ["given back", () => first.write({ op: "release", rangeId: taskRange.id })],
    [
      "ended",
      async () => {
        const [again] = (await first.lease(job.id, 9)).taskRanges;
        if (again === undefined) throw new Error("one task is left");
        await first.settle(await first.claim(again, 0, 0), [result(0)]);
      },
    ],
    ["run again", () => first.rerun(job.id, ["succeeded"])],
    ["cancelled", () => first.write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 9 }] })],
  ];
  for (const [what, act] of steps) {
    heard.length = 0;
    await act();
    await hears(what, { job: job.id });
  }
  const { job: other } = await first.submit({ count: 0 });
  await hears("ended at once", { job: other.id });
  heard.length = 0;
  await first.write({ op: "remove", job: other.id });
  await hears("removed", { job: other.id });
});

it("tells of a text that is kept", async () => {
  await first.write({ op: "put", bucket: "standing", key: "ann", value: "good" });
  await hears("kept", { bucket: "standing" });
});

it("tells of a schedule that is added or changed", async () => {
  const next = { revision: 2, state: { created: 1, changed: 1, paused: true, anchor: 1, runs: 0, skipped: 0 } };
  for (const change of [addSchedule("nightly", NOW), { name: "nightly", expected: 1, next, writes: [] }]) {
    heard.length = 0;
    await first.write({ op: "schedule", changes: [change] });
    await hears(`revision ${change.next?.revision}`, { bucket: "schedule" });
  }
});

it("hears of what was changed while its connection was gone, and while another transaction was under way", async () => {
  const { sql } = harness;
  const open = await sql.reserve();
  await open`BEGIN`;
  await open`SELECT pg_current_xact_id()`;
  const { job } = await first.submit();
  await hears("added", { job: job.id });
  heard.length = 0;
  await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'listen%'`;
  await first.write({ op: "hold", job: job.id, held: true });
  await hears("held", { job: job.id });
  expect(heard.filter((hint) => hint.job === job.id)).toHaveLength(1);
  await open`ROLLBACK`;
  open.release();
});

it("does not tell a broker of what it has changed alone", async () => {
  const { job } = await second.submit();
  const { job: others } = await first.submit();
  await hears("the other's", { job: others.id });
  expect(heard.map((hint) => hint.job)).not.toContain(job.id);
});

it("shows every open job at a glance, with another mark after each change", async () => {
  const { job, taskRange } = await first.submit({ count: 3 }, 3);
  const group = second.store.group;
  if (group === undefined || taskRange === undefined) throw new Error("it has a group");
  const [before] = await group.jobSummaries();
  expect(before).toMatchObject({ job: job.id, mayLease: false, counters: { succeeded: 0 } });
  await first.settle(await first.claim(taskRange, 0, 0), [result(0)]);
  expect(await group.jobSummaries()).toEqual([{ ...before, counters: { succeeded: 1, failed: 0, cancelled: 0 } }]);
  await first.write({ op: "release", rangeId: taskRange.id });
  const [after] = await group.jobSummaries();
  expect(after).toMatchObject({ job: job.id, mayLease: true });
  expect(after?.changeMark).not.toBe(before?.changeMark);
  await first.write({ op: "cancel", job: job.id, ranges: [{ first: 0, last: 2 }] }, NOW);
  expect(await group.jobSummaries()).toEqual([]);
});

it("leaves what waited to others, and says nothing more", async () => {
  const { job, taskRange } = await first.submitAll(4);
  await first.claim(taskRange, 0, 1);
  await first.store.group?.leave();
  expect((await second.lease(job.id, 9)).taskRanges).toMatchObject([{ first: 2, last: 3 }]);
  const [gone, alive] = (await second.store.group?.members()) ?? [];
  expect([gone, alive]).toMatchObject([
    { epoch: first.held.epoch, alive: false },
    { epoch: second.held.epoch, alive: true },
  ]);
  await expect(first.lease(job.id, 1)).rejects.toMatchObject({ code: "LABORO_LEASE_LOST" });
  expect(await second.store.group?.reap(NOW)).toEqual([first.held.epoch]);
});
