import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const HOUR_MS = 3_600_000;

describe("a delayed job", () => {
  it("starts when its time has come, and says until then when that is", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const job = await client.submit({ recipe: TRUE, count: 2, delayMs: 300 });
    const before = await job.info();
    expect(before).toMatchObject({ state: "delayed", delayMs: 300, counters: { waiting: 2 } });
    expect(await job.explain(0)).toMatch(/delayed until \d{4}-.*Z, in \d+ms/);
    expect(await job.wait()).toBe("succeeded");
    const [first] = await resultsOf(job);
    expect(first?.started).toBeGreaterThanOrEqual((before.notBefore ?? 0) - 1);
  });

  it("is not in the memory of the broker while it waits", async () => {
    const { broker, client } = await openTestBroker();
    await client.submit({ recipe: TRUE, delayMs: HOUR_MS });
    await client.submit({ recipe: TRUE, at: Date.now() + HOUR_MS });
    expect(broker.core.state.jobs.size).toBe(0);
    expect((await client.jobs({ state: ["delayed"] })).jobs.map(({ id }) => id)).toEqual([2, 1]);
    expect((await client.jobs({ state: ["open"] })).jobs).toHaveLength(2);
  });

  it("takes a time as a date, a text with a zone or a number, and starts at once where that has passed", async () => {
    const { client, worker } = await openTestBroker();
    const later = new Date("2126-12-24T17:00:00Z");
    for (const at of [later, "2126-12-24T18:00+01:00", later.getTime()]) {
      const job = await client.submit({ recipe: TRUE, at });
      expect(await job.info()).toMatchObject({ state: "delayed", notBefore: later.getTime() });
    }
    worker();
    const past = await client.submit({ recipe: TRUE, at: "2001-01-01T00:00:00Z" });
    expect(await past.wait()).toBe("succeeded");
    await expect(client.submit({ recipe: TRUE, at: "2026-12-24T18:00" })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
    await expect(client.submit({ recipe: TRUE, at: later, delayMs: 5 })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
  });

  it("can be held, cancelled and waited for, also by another job", async () => {
    const { client, worker } = await openTestBroker();
    const held = await client.submit({ recipe: TRUE, delayMs: 50 });
    await held.hold();
    await until("its time has come", async () => (await held.explain(0)) === "its job is held");
    worker();
    const cancelled = await client.submit({ recipe: TRUE, delayMs: HOUR_MS });
    const after = await client.submit({ recipe: TRUE, after: [{ job: cancelled.id, any: true }] });
    const wait = cancelled.wait();
    await cancelled.cancel();
    expect(await wait).toBe("cancelled");
    expect(await after.wait()).toBe("succeeded");
    expect((await held.info()).state).toBe("held");
    await held.release();
    expect(await held.wait()).toBe("succeeded");
    const both = await client.submit({ recipe: TRUE, delayMs: 1_000, after: [{ job: held.id }] });
    expect((await both.info()).state).toBe("delayed");
    expect(await both.wait()).toBe("succeeded");
  });
});

describe("the times of a schedule", () => {
  it("may be dates, as that of a job", async () => {
    const { client } = await openTestBroker();
    const start = new Date(Date.now() + 60_000);
    const job = { recipe: TRUE };
    expect(await client.schedules.set("later", { everyMs: 60_000, start, job })).toMatchObject({ start: +start });
    const end = new Date(+start + 600_000);
    expect(await client.schedules.edit("later", { end })).toMatchObject({ start: +start, end: +end });
  });
});

describe("a key", () => {
  it("belongs to one job at a time", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: TRUE, key: "k" });
    const again = await client.submit({ recipe: TRUE, key: "k" });
    expect([job.existed, again.existed, again.id]).toEqual([false, true, job.id]);
    await expect(client.submit({ recipe: TRUE, key: "k", ifExists: "refuse" })).rejects.toMatchObject({
      code: "LABORO_KEY_IN_USE",
      message: `job ${job.id} has the key k`,
    });
    worker();
    expect(await job.wait()).toBe("succeeded");
    const next = await client.submit({ recipe: TRUE, key: "k" });
    expect(next.existed).toBe(false);
    await expect(client.submit({ recipe: TRUE, keyForMs: 5 })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
    await expect(client.submit({ recipe: TRUE, key: "a b" })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });

  it("is taken from a job that runs, which is ended", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const recipe = { kind: "command", argv: ["sleep", "600"] } as const;
    const running = await client.submit({ recipe, key: "k" });
    await until("it runs", async () => (await running.info()).state === "running");
    const next = await client.submit({ recipe: TRUE, key: "k", ifExists: "replace" });
    expect(await running.wait()).toBe("cancelled");
    expect((await running.info()).reason).toBe(`replaced by job ${next.id}`);
    expect(await next.wait()).toBe("succeeded");
  });

  it("makes one job of many submissions at once", async () => {
    const { client } = await openTestBroker();
    const jobs = await Promise.all(Array.from({ length: 500 }, () => client.submit({ recipe: TRUE, key: "k" })));
    expect(new Set(jobs.map(({ id }) => id)).size).toBe(1);
    expect(jobs.filter(({ existed }) => !existed)).toHaveLength(1);
    expect((await client.jobs({ limit: 1000 })).jobs).toHaveLength(1);
  });
});

describe("a retry policy", () => {
  it("decides by the exit code of a command", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const recipe = { kind: "command", argv: ["/bin/sh", "-c", "exit {}"], placeholders: true } as const;
    const retry = { waitMs: 1, factor: 1, on: [75, 137], never: [137] };
    const job = await client.submit({ recipe, entries: ["75", "137", "1"], retries: 2, retry });
    expect(await job.wait()).toBe("failed");
    expect((await resultsOf(job)).map(({ attempt }) => attempt)).toEqual([3, 1, 1]);
    expect((await job.info()).limits).toMatchObject({ retries: 2, retry });
    await expect(client.submit({ recipe: TRUE, retry: { jitter: 2 } })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
  });
});
