import { describe, expect, it } from "vitest";
import { startRetention } from "../../src/broker/retention.js";
import { TRUE } from "../support/recipes.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const SILENT = { info: () => {}, warn: () => {}, error: () => {} };

describe("what has ended", () => {
  it("is forgotten after the time that was set, and open jobs never", async () => {
    const { broker, client, worker } = await openTestBroker();
    worker();
    const ended = await client.submit({ recipe: TRUE, count: 3 });
    await ended.wait();
    const open = await client.submit({ recipe: { kind: "call", service: "nobody's" }, count: 1 });
    const stop = startRetention(broker.core, { keepMs: 1, everyMs: 10 }, SILENT);
    const left = async () => (await client.ask("jobs", {})).jobs.map(({ id }) => id);
    await until("the job that ended is forgotten", async () => (await left()).length === 1);
    stop();
    expect(await left()).toEqual([open.id]);
  });

  it("is kept for its own time, and longer where it did not succeed", async () => {
    const { broker, client, worker } = await openTestBroker();
    worker();
    const keep = { keepMs: 1, keepFailedMs: 3_600_000 };
    const gone = await client.submit({ recipe: TRUE, ...keep });
    const failed = await client.submit({ recipe: { kind: "command", argv: ["false"] }, ...keep });
    const usual = await client.submit({ recipe: TRUE });
    const keyed = await client.submit({ recipe: TRUE, keepMs: 1, key: "k", keyForMs: 3_600_000 });
    for (const job of [gone, failed, usual, keyed]) await job.wait();
    const stop = startRetention(broker.core, { keepMs: 3_600_000, everyMs: 10 }, SILENT);
    const left = async () => (await client.ask("jobs", {})).jobs.map(({ id }) => id);
    await until("the one whose time is over is forgotten", async () => !(await left()).includes(gone.id));
    stop();
    expect(await left()).toEqual([keyed.id, usual.id, failed.id]);
  });

  it("is forgotten, the oldest first, until the rest fits", async () => {
    const { broker, client, worker } = await openTestBroker();
    worker();
    const output = { kind: "command", argv: ["head", "-c", "300000", "/dev/zero"] } as const;
    for (let i = 0; i < 25; i++) await (await client.submit({ recipe: output, count: 1 })).wait();
    const before = await broker.core.store.bytesUsed();
    expect(before).toBeGreaterThan(25 * 300_000);
    const stop = startRetention(broker.core, { keepBytes: before - 1_000_000, everyMs: 10 }, SILENT);
    await until("there is room again", async () => (await broker.core.store.bytesUsed()) < before - 1_000_000);
    stop();
    // Twenty go at a time, the newest are the last to go.
    expect((await client.ask("jobs", {})).jobs.map(({ id }) => Number(id))).toEqual([25, 24, 23, 22, 21]);
  });

  it("is kept for the least time, whatever its size", async () => {
    const { broker, client, worker } = await openTestBroker();
    worker();
    await (await client.submit({ recipe: TRUE, count: 3 })).wait();
    const least = { keepBytes: 0, keepAtLeastMs: 3_600_000, everyMs: 10 };
    const stop = startRetention(broker.core, least, SILENT);
    // Sizes are measured in each sweep, and each sweep reads the list of jobs.
    const { jobs } = broker.core.store;
    let sweeps = 0;
    broker.core.store.jobs = (options) => {
      sweeps++;
      return jobs.call(broker.core.store, options);
    };
    await until("it has looked several times", () => sweeps > 3);
    stop();
    expect((await client.ask("jobs", {})).jobs).toHaveLength(1);
  });
});
