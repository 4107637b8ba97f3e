/** What PostgreSQL takes less easily than others. */
import { afterEach, beforeEach, expect, it } from "vitest";
import { WorkerId } from "../../../src/model/ids.js";
import { LIMIT_BUCKET } from "../../../src/model/limit.js";
import { Broker, chunk, newRangeId, request, result, results } from "../suite/kit.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

let harness: DatabaseHarness;
let broker: Broker;

beforeEach(async () => {
  harness = await postgresHarness();
  broker = await Broker.at(harness.handle());
});

afterEach(async () => {
  await broker.store.close();
  await harness.dispose();
});

it("takes texts with NUL, quotes, braces and half of a character, and is not ended by them", async () => {
  const odd = 'a\0b "c" \\d {e,NULL} \ud800 f\'g \u{1f600}';
  const worker = WorkerId(`w${odd}`);
  const { job, taskRange } = await broker.submitAll(2, { name: odd, key: odd });
  const out = await broker.claim(taskRange, 0, 1, worker);
  await broker.settle(out, [result(0, { worker, error: odd, signal: "NULL" }), result(1, { worker })]);
  const stored = odd.replace("\0", "\ufffd").replace("\ud800", "\ufffd");
  const { results: found } = await broker.store.results(job.id, { from: 0, limit: 9, filter: { worker } });
  expect(found).toMatchObject([{ error: stored, signal: "NULL", worker: `w${stored}` }, { worker: `w${stored}` }]);
  const { jobs } = await broker.store.jobs({ limit: 9, filter: { key: odd, name: odd } });
  expect(jobs.map(({ id, name }) => [id, name.includes("\0")])).toEqual([[job.id, true]]);
  await broker.write({ op: "put", bucket: odd, key: odd, value: odd });
  expect(await broker.store.keyValues(odd)).toMatchObject([{ key: stored, value: stored }]);
});

it("adopts for a worker whose name has NUL in it", async () => {
  const other = await Broker.at(harness.handle());
  const worker = WorkerId("odd\0name");
  const { taskRange } = await broker.submitAll(2);
  await broker.claim(taskRange, 0, 1, worker);
  expect((await other.write({ op: "adopt", worker })).taskRanges).toHaveLength(1);
  await other.store.close();
});

it("keeps times with fractions and exit codes of other systems", async () => {
  const { job, taskRange } = await broker.submitAll(1);
  const out = await broker.claim(taskRange, 0, 0);
  const end = result(0, {
    started: 1_700_000_000_000.125,
    ended: 1_700_000_000_000.75,
    code: 0xc0000005,
    state: "failed",
  });
  await broker.settle(out, [end], true, 1_700_000_000_001.5);
  expect((await broker.store.results(job.id, { from: 0, limit: 1 })).results).toEqual([end]);
  expect((await broker.job(job)).ended?.at).toBe(1_700_000_000_001.5);
});

it("holds a job of a thousand million tasks, and cancels up to its last", async () => {
  const { job } = await broker.submit({ count: 1_000_000_000 }, 10);
  const ranges = [{ first: 10, last: Number.MAX_SAFE_INTEGER }];
  const { progress } = await broker.write({ op: "cancel", job: job.id, ranges });
  expect(progress?.counters.cancelled).toBe(999_999_990);
});

it("takes a batch of very many jobs, claims and results at once", async () => {
  const count = 1_000;
  const submits = Array.from({ length: count }, () => ({
    op: "submit" as const,
    job: request({ count: 1 }),
    lease: 1,
    rangeId: newRangeId(),
  }));
  await broker.store.commit(submits, 1);
  const { jobs } = await broker.store.jobs({ limit: count, filter: { states: ["open"] } });
  expect(jobs).toHaveLength(count);
  const first = Math.min(...jobs.map(({ id }) => id));
  const outs = submits.map(() => newRangeId());
  const claims = submits.map(({ rangeId }, i) => {
    const claimed = { op: "claim", from: rangeId, rangeId: outs[i] ?? rangeId, first: 0, last: 0 } as const;
    return { ...claimed, attempt: 1, worker: WorkerId("w") };
  });
  const settles = outs.map((rangeId, i) => {
    const job = jobs.find(({ id }) => id === first + i)?.id;
    if (job === undefined) throw new Error("the jobs are numbered in a row");
    return { op: "settle", job, rangeId, results: results(0, 0), empty: true } as const;
  });
  await broker.store.commit(claims, 2);
  const answers = await broker.store.commit(settles, 3);
  expect(answers.every((answer) => answer.op === "settle" && answer.progress?.ended === "succeeded")).toBe(true);
  expect((await broker.store.jobs({ limit: 9, filter: { states: ["open"] } })).jobs).toEqual([]);
});

it("reckons how much room it takes", async () => {
  const before = await broker.store.bytesUsed();
  const { job, taskRange } = await broker.submit({}, 2, ["x".repeat(100_000), "y"]);
  if (taskRange === undefined) throw new Error("no task range was granted");
  const out = await broker.claim(taskRange, 0, 1);
  await broker.write({ op: "output", chunks: [chunk(job, 0, 0, "z".repeat(200_000))] });
  expect((await broker.store.bytesUsed()) - before).toBeGreaterThan(300_000);
  await broker.settle(out, results(0, 1));
  await broker.write({ op: "remove", job: job.id });
  expect((await broker.store.bytesUsed()) - before).toBeLessThan(100_000);
});

it("counts no start of a limit that lies beyond its interval ahead: the clock was set back", async () => {
  const rule = { rate: { starts: 1, intervalMs: 1_000 } };
  await broker.write({ op: "put", bucket: LIMIT_BUCKET, key: "api", value: JSON.stringify(rule) });
  const { epoch } = broker.held;
  await harness.sql`INSERT INTO laboro.limit_start (name, epoch, at, count)
    SELECT 'api', ${epoch}, extract(epoch FROM clock_timestamp()) * 1000 + 3600000, 1`;
  expect(await broker.store.group?.limitUse(["api"])).toMatchObject([{ starts: 0 }]);
});
