/** What two brokers do at the same time. */
import { afterEach, beforeEach, expect, it } from "vitest";
import type { JobSpec } from "../../../src/model/job.js";
import { sizeOf } from "../../../src/model/ranges.js";
import type { Write } from "../../../src/model/store.js";
import { until } from "../../support/wait.js";
import { ANN, Broker, NOW, newRangeId, request, result, results } from "../suite/kit.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

let harness: DatabaseHarness;
let first: Broker;
let second: Broker;

beforeEach(async () => {
  harness = await postgresHarness();
  first = await Broker.at(harness.handle());
  second = await Broker.at(harness.handle());
});

afterEach(async () => {
  await first.store.close();
  await second.store.close();
  await harness.dispose();
});

it("ends a job once whose last tasks are recorded by two brokers at once", async () => {
  for (let round = 0; round < 30; round++) {
    const { job } = await first.submit({ count: 2 });
    const sides = await Promise.all(
      [first, second].map(async (broker, index) => {
        const [taskRange] = (await broker.lease(job.id, 1)).taskRanges;
        if (taskRange === undefined) throw new Error("each has one task");
        return { broker, out: await broker.claim(taskRange, taskRange.first, taskRange.last), index };
      }),
    );
    const answers = await Promise.all(sides.map(({ broker, out }) => broker.settle(out, [result(out.first)])));
    expect(answers.filter(({ progress }) => progress?.ended === "succeeded")).toHaveLength(1);
    expect(await second.job(job)).toMatchObject({ counters: { succeeded: 2 }, ended: { state: "succeeded" } });
  }
});

it("grants every task to one broker, and all of them, whoever asks and whatever is given back meanwhile", async () => {
  const count = 400;
  const { job } = await first.submit({ count });
  const owned = new Array<number>(count).fill(0);
  const side = async (broker: Broker): Promise<void> => {
    for (let round = 0; ; round++) {
      const { taskRanges, mayLease: more } = await broker.lease(job.id, 7);
      if (taskRanges.length === 0 && !more) return;
      for (const taskRange of taskRanges) {
        if (round % 3 === 1 && round < 20) {
          await broker.write({ op: "release", rangeId: taskRange.id });
          continue;
        }
        await broker.claim(taskRange, taskRange.first, taskRange.last);
        for (let index = taskRange.first; index <= taskRange.last; index++) owned[index] = (owned[index] ?? 0) + 1;
      }
    }
  };
  await Promise.all([side(first), side(second)]);
  // What one gave back after the other had asked for the last time.
  await side(first);
  expect(owned).toEqual(new Array<number>(count).fill(1));
});

it("acknowledges a cancel only after results that did not know of it are recorded", async () => {
  const { job, taskRange } = await first.submitAll(2);
  const out = await first.claim(taskRange, 0, 1);
  await first.settle(out, [result(0)], false);
  const { sql } = harness;
  // The result is held up in the middle: it has looked at the cancels, and waits for its counters.
  const holdUp = await sql.reserve();
  await holdUp`BEGIN`;
  await holdUp`SELECT * FROM laboro.job_counters FOR UPDATE`;
  const order: string[] = [];
  const settling = first.settle(out, [result(1)]).then((answer) => {
    order.push("settled");
    return answer;
  });
  /** How many statements wait for another's lock. */
  const heldUp = async (): Promise<number> => {
    const [found] = await sql<{ count: number }[]>`
      SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    return found?.count ?? 0;
  };
  await until("the result waits", async () => (await heldUp()) === 1);
  const cancelling = second.write({ op: "cancel", job: job.id, ranges: [{ first: 1, last: 1 }] }).then((answer) => {
    order.push("cancelled");
    return answer;
  });
  await until("the cancel waits for the result", async () => (await heldUp()) === 2);
  expect(order).toEqual([]);
  await holdUp`COMMIT`;
  holdUp.release();
  expect((await settling).progress).toEqual({
    counters: { succeeded: 2, failed: 0, cancelled: 0 },
    ended: "succeeded",
  });
  expect((await cancelling).progress?.ended).toBe("succeeded");
  expect((await first.job(job)).cancels).toEqual([]);
});

it("lets a result be recorded by its broker or be found by the one that adopts, never neither and never both", async () => {
  for (let round = 0; round < 30; round++) {
    const { job, taskRange } = await first.submitAll(3);
    const out = await first.claim(taskRange, 0, 2);
    const [settled, adopted] = await Promise.all([
      first.settle(out, [result(1)], false),
      second.write({ op: "adopt", worker: ANN }),
    ]);
    const [held] = adopted.taskRanges;
    if (held === undefined) throw new Error("the worker has one task range");
    expect(held.settled).toEqual(settled.lost ? [] : [{ first: 1, last: 1 }]);
    const rest = [0, 1, 2].map((index) => result(index));
    const { progress } = await second.settle(held.taskRange, rest);
    expect(progress).toEqual({ counters: { succeeded: 3, failed: 0, cancelled: 0 }, ended: "succeeded" });
    expect((await first.store.results(job.id, { from: 0, limit: 9 })).results).toHaveLength(3);
  }
});

it("keeps a text for one of two that expect the same version", async () => {
  for (let version = 0; version < 20; version++) {
    const answers = await Promise.all(
      [first, second].map((broker, n) => broker.write({ op: "put", bucket: "a", key: "k", value: `${n}`, version })),
    );
    expect(answers.filter(({ stored: kept }) => kept)).toHaveLength(1);
  }
  expect(await first.store.keyValues("a")).toMatchObject([{ version: 20 }]);
});

it("takes what a dead broker left once, however many find it dead", async () => {
  const { sql } = harness;
  const third = await Broker.at(harness.handle());
  const { job, taskRange } = await third.submitAll(10);
  await third.claim(taskRange, 0, 3);
  const groups = [first, second].map(({ store }) => store.group);
  expect(await groups[0]?.takeOverClaims(third.held.epoch)).toEqual([]);
  await sql`UPDATE laboro.broker SET lease_ends_at = now() - interval '1 s' WHERE epoch = ${third.held.epoch}`;
  await Promise.all(groups.map((group) => group?.reap(NOW)));
  expect(await groups[0]?.reap(NOW)).toEqual([third.held.epoch]);
  const taken = await Promise.all(groups.map((group) => group?.takeOverClaims(third.held.epoch)));
  expect(taken.flat().map((held) => held?.taskRange)).toMatchObject([{ first: 0, last: 3, worker: ANN }]);
  expect(await groups[0]?.reap(NOW)).toEqual([]);
  const leases = await Promise.all([first.lease(job.id, 100), second.lease(job.id, 100)]);
  expect(leases.flatMap(({ taskRanges }) => taskRanges).reduce((sum, one) => sum + sizeOf(one), 0)).toBe(6);
  await expect(third.lease(job.id, 1)).rejects.toMatchObject({ code: "LABORO_LEASE_LOST" });
  await expect(third.store.group?.heartbeat("{}", 1_000)).rejects.toMatchObject({ code: "LABORO_LEASE_LOST" });
  await third.store.close();
});

it("finds no broker dead that renews its lease, also after the lease has ended", async () => {
  const { sql } = harness;
  await sql`UPDATE laboro.broker SET lease_ends_at = now() - interval '1 s' WHERE epoch = ${second.held.epoch}`;
  expect(await first.store.group?.members()).toMatchObject([{ alive: true }, { alive: false }]);
  await second.store.group?.heartbeat('{"name":"second"}', 60_000);
  await first.store.group?.reap(NOW);
  expect(await first.store.group?.members()).toMatchObject([
    { alive: true },
    { alive: true, info: '{"name":"second"}' },
  ]);
  await second.submitAll(1);
});

it("records what both write to one job, with no turn missed", async () => {
  const { job } = await first.submit({ count: 600 });
  const side = async (broker: Broker): Promise<void> => {
    for (;;) {
      const { taskRanges } = await broker.lease(job.id, 20);
      if (taskRanges.length === 0) return;
      for (const taskRange of taskRanges) {
        const out = await broker.claim(taskRange, taskRange.first, taskRange.last);
        await broker.settle(out, results(taskRange.first, taskRange.last));
      }
    }
  };
  await Promise.all([side(first), side(second)]);
  expect(await first.job(job)).toMatchObject({ counters: { succeeded: 600 }, ended: { state: "succeeded" } });
  expect((await first.store.results(job.id, { from: 0, limit: 700 })).results).toHaveLength(600);
});

const keyed = (key: string, over: Partial<JobSpec> = {}): Write => ({
  op: "submit",
  job: request({ count: 1, key, ...over }),
  lease: 0,
  rangeId: newRangeId(),
});

it("makes one job of a key, whoever submits it and however many keys a batch has", async () => {
  for (let round = 0; round < 10; round++) {
    const keys = Array.from({ length: 10 }, (_, i) => `${round}-${i}`);
    const sides = [first, second].flatMap(({ store }, at) =>
      [keys, keys.toReversed(), keys.slice(3)].map((some) =>
        store.commit(
          some.map((key, i) => keyed(key, { idempotencyKey: `${round}.${at}.${i}.${some.length}.${some[0]}` })),
          NOW,
        ),
      ),
    );
    const answers = (await Promise.all(sides)).flat();
    expect(answers.filter(({ op }) => op === "submit")).toHaveLength(keys.length);
    for (const key of keys)
      expect((await second.store.jobs({ limit: 9, filter: { key } })).jobs.map(({ id }) => id)).toHaveLength(1);
  }
});

it("leaves one open job of a key that both replace", async () => {
  const replace = ({ store }: Broker): Promise<unknown> => store.commit([keyed("k", { ifExists: "replace" })], NOW);
  await Promise.all(Array.from({ length: 40 }, (_, i) => replace(i % 2 === 0 ? first : second)));
  const { jobs } = await first.store.jobs({ limit: 99, filter: { key: "k" } });
  expect(jobs).toHaveLength(40);
  expect(jobs.filter(({ ended }) => ended === undefined)).toHaveLength(1);
});

it("gives a key on although the job that had it ends or is removed at the same time", async () => {
  for (let round = 0; round < 30; round++) {
    const { job, taskRange } = await first.submitAll(1, { key: "k" });
    const out = await first.claim(taskRange, 0, 0);
    const end: Write = { op: "settle", job: job.id, rangeId: out.id, results: [result(0)], empty: true };
    const [, [answer]] = await Promise.all([
      first.store.commit([end, { op: "remove", job: job.id }], NOW),
      second.store.commit([keyed("k")], NOW),
    ]);
    if (answer?.op === "duplicate") expect(answer).toEqual({ op: "duplicate", job: job.id, byKey: true });
    else if (answer?.op === "submit")
      await second.write({ op: "cancel", job: answer.job.id, ranges: [{ first: 0, last: 0 }] });
    else throw new Error("the submission was not answered");
  }
});

it("promotes each delayed job at one broker", async () => {
  for (let i = 0; i < 200; i++) await first.submit({ count: 1, notBefore: NOW + (i % 7), delayMs: i % 7 });
  const side = async (broker: Broker): Promise<number[]> => {
    const found: number[] = [];
    for (;;) {
      const { jobs } = await broker.write({ op: "promote", clock: 0, steady: NOW + 7, max: 11 });
      if (jobs.length === 0) return found;
      found.push(...jobs.map(({ id }) => id));
    }
  };
  const promoted = (await Promise.all([side(first), side(second)])).flat();
  promoted.push(...(await side(first)));
  expect(new Set(promoted).size).toBe(200);
  expect(promoted).toHaveLength(200);
});
