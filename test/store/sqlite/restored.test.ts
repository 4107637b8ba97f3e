/** The database is not the one that the output beside it was written for. */
import * as fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { Job } from "../../../src/model/job.js";
import { atEnd } from "../../support/at-end.js";
import { Broker, chunk, result } from "../suite/kit.js";
import { sqliteHarness } from "./harness.js";

async function textOf({ store }: Broker, { id }: Job, index: number): Promise<string> {
  const { pieces } = await store.output(id, index, { from: 0, limit: 99 });
  return pieces.map(({ bytes }) => Buffer.from(bytes).toString()).join("");
}

it("each new store has another identity", async () => {
  const [one, other] = [await sqliteHarness(), await sqliteHarness()];
  const brokers = await Promise.all([one, other].map(({ handle }) => Broker.at(handle())));
  expect(new Set(brokers.map(({ held }) => held.identity)).size).toBe(2);
  await Promise.all(brokers.map(({ store }) => store.close()));
  await Promise.all([one, other].map(({ dispose }) => dispose()));
});

it("that of another store: its jobs are not given the output of jobs with the same numbers", async () => {
  const [one, other] = [await sqliteHarness(), await sqliteHarness()];
  atEnd(() => Promise.all([one.dispose(), other.dispose()]));
  for (const [{ handle }, text] of [
    [one, "of the one"],
    [other, "of the other"],
  ] as const) {
    const broker = await Broker.at(handle());
    const { job, taskRange } = await broker.submitAll(1);
    const out = await broker.claim(taskRange, 0, 0);
    await broker.write({ op: "output", chunks: [chunk(job, 0, 0, text)] });
    await broker.settle(out, [result(0, { outputBytes: text.length })]);
    await broker.store.close();
  }
  fs.copyFileSync(other.database, one.database);
  const broker = await Broker.at(one.handle());
  const [job] = broker.held.jobs.length === 0 ? (await broker.store.jobs({ limit: 1 })).jobs : [];
  if (job === undefined) throw new Error("the job has not ended");
  expect(await textOf(broker, job, 0)).toBe("");
  expect(broker.held.nextJob).toBe(2);
  await broker.store.close();
});

it("an older copy of it: output of attempts that it does not know is not taken for that of later ones", async () => {
  const { dir, database, handle, dispose } = await sqliteHarness();
  atEnd(dispose);
  const first = await Broker.at(handle());
  const { job, taskRange } = await first.submitAll(3);
  const out = await first.claim(taskRange, 0, 0);
  await first.write({ op: "output", chunks: [chunk(job, 0, 0, "known, ")] });
  await first.store.close();
  fs.copyFileSync(database, join(dir, "copy"));

  const lost = await Broker.at(handle());
  await lost.claim({ ...taskRange, first: 1 }, 1, 1);
  await lost.write({ op: "output", chunks: [chunk(job, 1, 0, "of the lost attempt")] });
  await lost.store.close();
  fs.rmSync(`${database}-wal`, { force: true });
  fs.copyFileSync(join(dir, "copy"), database);

  const restored = await Broker.at(handle());
  const again = await restored.claim({ ...taskRange, first: 1 }, 1, 1);
  expect(await restored.store.storedOutputBytes([{ job: job.id, index: 1, attempt: 1 }])).toEqual([0]);
  const chunks = [chunk(job, 1, 0, "own"), chunk(job, 0, 7, "and more")];
  await restored.write({ op: "output", chunks });
  await restored.store.close();

  const after = await Broker.at(handle());
  await after.settle(again, [result(1, { outputBytes: 3 })]);
  await after.settle(out, [result(0, { outputBytes: 15 })]);
  expect(await textOf(after, job, 1)).toBe("own");
  expect(await textOf(after, job, 0)).toBe("known, and more");
  await after.store.close();
});
