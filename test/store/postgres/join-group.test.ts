/** A broker that knows its former life. */
import { afterEach, beforeEach, expect, it } from "vitest";
import { ANN, Broker, result } from "../suite/kit.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

let harness: DatabaseHarness;
let before: Broker;

beforeEach(async () => {
  harness = await postgresHarness();
  before = await Broker.at(harness.handle());
  await before.store.group?.heartbeat('{"identity":"one"}', 60_000);
});

afterEach(async () => {
  await before.store.close();
  await harness.dispose();
});

it("has at once what its former life had, and the former life nothing more", async () => {
  const { job, taskRange } = await before.submitAll(4);
  const out = await before.claim(taskRange, 0, 1);
  await before.settle(out, [result(0)], false);
  const after = await Broker.at(harness.open({ formerEpoch: before.held.epoch, identity: "one" }));
  const history = { job: job.id, failures: 0, crashes: 0, notBefore: 0 };
  expect(after.held.taskRanges).toEqual([
    { taskRange: { ...history, id: taskRange.id, first: 2, last: 3, attempt: 0 }, settled: [] },
    {
      taskRange: { ...history, id: out.id, first: 0, last: 1, attempt: 1, worker: ANN },
      settled: [{ first: 0, last: 0 }],
    },
  ]);
  expect((await after.settle(out, [result(1)])).lost).toBe(false);
  await expect(before.settle(out, [result(1)])).rejects.toMatchObject({ code: "LABORO_LEASE_LOST" });
  await after.store.close();
});

it("takes nothing of a broker that calls itself something else", async () => {
  const { taskRange } = await before.submitAll(2);
  const other = await Broker.at(harness.open({ formerEpoch: before.held.epoch, identity: "two" }));
  expect(other.held.taskRanges).toEqual([]);
  await before.claim(taskRange, 0, 1);
  await other.store.close();
});
