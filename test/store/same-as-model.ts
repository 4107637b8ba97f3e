/** Runs random steps on the model and on an engine side by side: equal answers, equal reads, the model's invariant after each. */
import * as fc from "fast-check";
import { expect } from "vitest";
import type { Store, Write, WriteResult } from "../../src/model/store.js";
import type { JobFilter, ResultFilter } from "../../src/model/store-reads.js";
import type { MakeStore } from "./contract-suite.js";
import { NAMES, POOLS, type Step, steps, writeFor } from "./model-steps.js";
import { ModelWorld } from "./model-store.js";
import { NOW } from "./suite/kit.js";

export async function sameAsModel(make: MakeStore, runs: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(steps, async (list) => {
      const harness = await make();
      try {
        await runBoth(list, harness.handle);
      } finally {
        await harness.dispose();
      }
    }),
    // To look for a shorter example takes longer than the test may: the seed finds it again.
    { numRuns: runs, endOnFailure: true },
  );
}

async function runBoth(list: readonly Step[], handle: () => Store): Promise<void> {
  const world = new ModelWorld({ shared: false });
  let model = world.store();
  let engine = handle();
  const opened = await engine.open(NOW);
  const { identity } = opened;
  expect(opened).toEqual({ ...(await model.open(NOW)), identity });
  let writes: Write[] = [];
  let answers: WriteResult[] = [];
  let now = 0;

  const commit = async (): Promise<void> => {
    expect(await engine.commit(writes, now)).toEqual(answers);
    writes = [];
    answers = [];
    now += 7;
  };
  const reopen = async (): Promise<void> => {
    await commit();
    await engine.close();
    await model.close();
    [engine, model] = [handle(), world.store()];
    expect(await engine.open(now)).toEqual({ ...(await model.open(now)), identity });
  };

  try {
    for (const step of list) {
      if (step.kind === "commit") await commit();
      else if (step.kind === "reopen") await reopen();
      const write = writeFor(step, world);
      if (write === undefined || step.kind === "commit" || step.kind === "reopen") continue;
      writes.push(write);
      // The model takes them one by one, the engine as a batch.
      answers.push(...(await model.commit([write], now)));
      world.check();
      // Only its answer tells a broker what it may hand out, and as which attempt.
      if (write.op === "rerun") await commit();
    }
    await commit();
    await sameReads(engine, model, world);
    await reopen();
    await sameReads(engine, model, world);
  } finally {
    await engine.close();
  }
}

const JOB_FILTERS: readonly JobFilter[] = [
  {},
  { states: ["open"] },
  { states: ["cancelled", "open"] },
  { states: ["succeeded", "failed"], pool: "gpu" },
  { states: [] },
  { createdFrom: 14, createdBefore: 35 },
  { endedBefore: 28, name: "j*" },
  { key: "key-0" },
  { batchKey: "key 0" },
  ...POOLS.map((pool) => ({ pool })),
  ...[...NAMES, "*", "j*b", "*b", "j*", "j?*", "j[o]*", "j%*", "*_*", "*o*b*", "**", "*]*[*"].map((name) => ({ name })),
];

const RESULT_FILTERS: readonly ResultFilter[] = [
  {},
  { states: ["failed"] },
  { states: ["cancelled", "failed"], worker: "bob" },
  { states: ["succeeded", "failed", "failed"] },
  { worker: "ann" },
  { worker: "never heard of" },
  { states: [] },
];

export async function sameReads(engine: Store, model: Store, world: ModelWorld): Promise<void> {
  for (const filter of JOB_FILTERS) {
    for (const limit of [2, 1000]) {
      expect(await engine.jobs({ limit, filter })).toEqual(await model.jobs({ limit, filter }));
    }
  }
  expect(await engine.nextDelayed()).toEqual(await model.nextDelayed());
  expect(await engine.delayedCount()).toBe(await model.delayedCount());
  for (const query of [{ limit: 9 }, { due: true, limit: 1 }]) {
    const [found, expected] = [await engine.schedules(query), await model.schedules(query)];
    expect(found).toEqual({ ...expected, now: expect.any(Number) });
  }
  for (const keep of [{}, { keepMs: 20 }, { keepMs: 10, keepFailedMs: 30 }, { keepFailedMs: 10 }]) {
    for (const now of [20, 40, 80]) {
      const [found, expected] = [await engine.expiredJobs(now, keep, 99), await model.expiredJobs(now, keep, 99)];
      expect([...found].sort((a, b) => a - b)).toEqual(expected);
      expect((await engine.expiredJobs(now, keep, 2)).length).toBe(Math.min(2, expected.length));
    }
  }
  for (const { job } of world.jobs.values()) {
    const { id, count } = job;
    const all = { first: 0, last: count - 1 };
    const page = { from: 2, limit: 5 };
    expect(await engine.job(id)).toEqual(await model.job(id));
    expect(await engine.usage(id, all)).toEqual(await model.usage(id, all));
    expect(await engine.entries(id, all)).toEqual(await model.entries(id, all));
    for (const filter of RESULT_FILTERS) {
      const whole = { from: 0, limit: 99, filter, withOutput: true, maxValue: 8 };
      expect(await engine.results(id, whole)).toEqual(await model.results(id, whole));
      expect(await engine.results(id, { ...page, filter })).toEqual(await model.results(id, { ...page, filter }));
    }
    for (let index = 0; index < count; index++) {
      expect(await engine.earlierAttempts(id, index)).toEqual(await model.earlierAttempts(id, index));
      for (const options of [
        { from: 0, limit: 999 },
        { from: 4, limit: 9, stream: "stderr" as const },
        { from: 3, limit: 8 },
        { from: 0, limit: 999, attempt: 1 },
        { from: 0, limit: 999, attempt: 2 },
      ]) {
        expect(await engine.output(id, index, options)).toEqual(await model.output(id, index, options));
      }
      const attempts = [1, 2, 3].map((attempt) => ({ job: id, index, attempt }));
      expect(await engine.storedOutputBytes(attempts)).toEqual(await model.storedOutputBytes(attempts));
    }
  }
}
