import { describe, expect, it } from "vitest";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { until } from "../support/wait.js";
import { sh } from "./support/cli.js";

describe("laboro's own worker that is connected", () => {
  it("hears of a change: slots, tags and the environment of its tasks", async () => {
    const setup = await openTestBroker({ heartbeatMs: 500 });
    setup.worker({ name: "node17", slots: 1, tags: ["own"] });
    setup.worker({ name: "node18", slots: 1 });
    const workers = async () =>
      (await setup.client.workers()).map(({ name, total, tags }) => [name, total.slots, [...tags]]);
    await until("both have joined", async () => (await workers()).length === 2);
    await setup.client.ask("configSet", {
      settings: { environment: { GREETING: "hello" }, tags: ["all"], workers: { node17: { slots: 3, tags: ["big"] } } },
    });
    await until(
      "both are what they are told to be",
      async () =>
        JSON.stringify((await workers()).sort()) ===
        JSON.stringify([
          ["node17", 3, ["own", "big"]],
          ["node18", 1, ["all"]],
        ]),
    );
    const job = await setup.client.submit({ recipe: sh("echo $GREETING; sleep 0.2"), tags: ["big"], count: 3 });
    await until(
      "all three run at once",
      async () => (await setup.client.ask("job", { job: job.id })).counters.running === 3,
    );
    await job.wait();
    expect((await resultsOf(job)).map(({ code }) => code)).toEqual([0, 0, 0]);
    const { pieces } = await setup.client.ask("output", { job: job.id, index: 0 });
    expect(pieces.map(({ bytes }) => Buffer.from(bytes).toString()).join("")).toBe("hello\n");
    await setup.client.ask("configSet", { settings: {} });
    await until(
      "both are what they were started as",
      async () =>
        JSON.stringify((await workers()).sort()) ===
        JSON.stringify([
          ["node17", 1, ["own"]],
          ["node18", 1, []],
        ]),
    );
  });

  it("made smaller lets what runs end, and takes no more than it is told", async () => {
    const setup = await openTestBroker();
    setup.worker({ slots: 3 });
    const job = await setup.client.submit({ recipe: sh("sleep 0.1"), count: 12 });
    await until("three run", async () => (await setup.client.ask("job", { job: job.id })).counters.running >= 3);
    await setup.client.ask("configSet", { settings: { slots: 1 } });
    await until("it has one slot", async () => (await setup.client.workers())[0]?.total.slots === 1);
    const { running, succeeded } = (await job.info()).counters;
    await job.wait();
    const results = await resultsOf(job);
    expect(results.map(({ code }) => code)).toEqual(Array(12).fill(0));
    results.sort((a, b) => (a.started ?? 0) - (b.started ?? 0));
    const begunBefore = running + succeeded;
    expect(begunBefore).toBeLessThan(10);
    for (const [i, { started = 0 }] of results.entries()) {
      const ends = results.slice(0, i).map(({ ended = 0 }) => ended);
      if (i >= begunBefore) expect(started).toBeGreaterThanOrEqual(Math.max(...ends));
    }
    const [worker] = await setup.client.workers();
    expect([worker?.total.slots, worker?.free.slots]).toEqual([1, 1]);
  });

  it("is told when it joins, and its heartbeat follows", async () => {
    const setup = await openTestBroker();
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 100, slots: 4 } });
    const worker = setup.worker({ slots: 1 });
    await until("it has four slots", async () => (await setup.client.workers())[0]?.total.slots === 4);
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 60_000 } });
    await until("it has one slot again", async () => (await setup.client.workers())[0]?.total.slots === 1);
    // While this runs nothing is said: a heartbeat that only one end had changed would have cut the link before it ends.
    const job = await setup.client.submit({ recipe: sh("sleep 0.6") });
    expect(await job.wait()).toBe("succeeded");
    expect(worker.joined).toBe(true);
    const { events } = await setup.client.ask("events", { after: 0 });
    expect(events.map(({ kind }) => kind).filter((kind) => kind.startsWith("worker-"))).toEqual(["worker-joined"]);
  });
});
