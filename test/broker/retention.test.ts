import { describe, expect, it } from "vitest";
import { startRetention } from "../../src/broker/retention.js";
import { openShop } from "../client/shop.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";

const SILENT = { info: () => {}, warn: () => {}, error: () => {} };

describe("what has ended", () => {
  it("is forgotten after the time that was set, and open jobs never", async () => {
    const { broker, client, worker } = await openShop();
    worker();
    const ended = await client.submit({ recipe: TRUE, count: 3 });
    await ended.wait();
    const open = await client.submit({ recipe: { kind: "call", service: "nobody's" }, count: 1 });
    const stop = startRetention(broker.core, { keepForMs: 1, everyMs: 10 }, SILENT);
    const left = async () => (await client.ask("jobs", {})).jobs.map(({ id }) => id);
    await until("the job that ended is forgotten", async () => (await left()).length === 1);
    stop();
    expect(await left()).toEqual([open.id]);
  });

  it("is forgotten, the oldest first, until the rest fits", async () => {
    const { broker, client, worker } = await openShop();
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
});
