import { describe, expect, it } from "vitest";
import type { StopReason } from "../../src/worker/index.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const sleep = (seconds: number) => ({ kind: "command", argv: ["sleep", String(seconds)] }) as const;

describe("a worker with a lifetime", () => {
  it("stops when it is over, and gives its tasks back at no cost", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: sleep(1.5), crashLimit: 1 });
    let why: StopReason | undefined;
    const first = worker({
      name: "short",
      lifetimeMs: 700,
      onStopped: (reason) => {
        why = reason;
      },
    });
    await until("it has joined", () => first.joined);
    await until("it has the task", async () => (await client.workers()).some(({ tasks }) => tasks === 1));
    await until("its lifetime is over", () => why === "lifetime");
    worker({ name: "long" });
    expect(await job.wait()).toBe("succeeded");
    expect(await resultsOf(job)).toMatchObject([{ worker: "long", attempt: 2 }]);
  });

  it("with a grace takes no more tasks when it is over, and lets those that run end", async () => {
    const { broker, client, worker } = await openTestBroker();
    const before = await client.submit({ recipe: sleep(1.5) });
    let why: StopReason | undefined;
    worker({
      ...{ name: "short", lifetimeMs: 500, lifetimeGraceMs: 30_000 },
      onStopped: (reason) => {
        why = reason;
      },
    });
    await until("it has the task", async () => (await client.workers()).some(({ tasks }) => tasks === 1));
    await until("it leaves", () => [...broker.core.state.workers.values()].some(({ leaving }) => leaving));
    const after = await client.submit({ recipe: sleep(0) });
    expect(await before.wait()).toBe("succeeded");
    await until("its lifetime is over", () => why === "lifetime");
    expect([(await resultsOf(before))[0], (await after.info()).ended]).toMatchObject([{ worker: "short" }, undefined]);
  });

  it("with a grace stops what still runs at its end, at no cost", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: sleep(60), crashLimit: 1 });
    let why: StopReason | undefined;
    worker({
      ...{ lifetimeMs: 500, lifetimeGraceMs: 1_000, cancelGraceMs: 300 },
      onStopped: (reason) => {
        why = reason;
      },
    });
    await until("it has the task", async () => (await client.workers()).some(({ tasks }) => tasks === 1));
    await until("its lifetime is over", () => why === "lifetime");
    expect((await job.info()).ended).toBeUndefined();
  });

  it("lets tasks end on their own only as long as it lasts", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: sleep(60) });
    const short = worker({ lifetimeMs: 1_000 });
    await until("it has the task", async () => (await client.workers()).some(({ tasks }) => tasks === 1));
    const begun = Date.now();
    await short.stop({ finish: true });
    expect(Date.now() - begun).toBeLessThan(10_000);
    expect((await job.info()).ended).toBeUndefined();
  });

  it("tells the broker until when it is there", async () => {
    const { broker, worker } = await openTestBroker();
    const timed = worker({ lifetimeMs: 3_600_000 });
    const endless = worker();
    await until("both have joined", () => timed.joined && endless.joined);
    const profileOf = (id: typeof timed.id) => broker.core.state.workers.get(id)?.profile;
    const left = (profileOf(timed.id)?.leavesAt ?? 0) - Date.now();
    expect(left).toBeGreaterThan(3_590_000);
    expect(left).toBeLessThanOrEqual(3_600_100);
    expect(profileOf(endless.id)).not.toHaveProperty("until");
  });

  it("begins no task whose time limit is longer than what is left", async () => {
    const { client, worker } = await openTestBroker();
    const short = worker({ name: "short", lifetimeMs: 4_000 });
    await until("it has joined", () => short.joined);
    const long = await client.submit({ recipe: sleep(0), timeLimitMs: 60_000 });
    const brief = await client.submit({ recipe: sleep(0), timeLimitMs: 1_000 });
    const boundless = await client.submit({ recipe: sleep(0) });
    const wants = await client.submit({ recipe: sleep(0), timeRequestMs: 60_000, timeLimitMs: 1_000 });
    expect([await brief.wait(), await boundless.wait()]).toEqual(["succeeded", "succeeded"]);
    expect([(await long.info()).ended, (await wants.info()).ended]).toEqual([undefined, undefined]);
    worker({ name: "long" });
    expect(await wants.wait()).toBe("succeeded");
    expect(await long.wait()).toBe("succeeded");
    expect(await resultsOf(long)).toMatchObject([{ worker: "long" }]);
  });
});

describe("a worker with an idle timeout", () => {
  it("stops when it had nothing for so long, and not while a task or a request runs", async () => {
    const { client, worker } = await openTestBroker();
    const ended: { why: StopReason; at: number }[] = [];
    const slow = (): Promise<string> => new Promise((resolve) => setTimeout(() => resolve("done"), 900));
    worker({
      idleTimeoutMs: 400,
      services: { slow },
      onStopped: (why) => void ended.push({ why, at: Date.now() }),
    });
    const job = await client.submit({ recipe: sleep(0.9) });
    expect(await job.wait()).toBe("succeeded");
    expect(Buffer.from(await client.request("slow")).toString()).toBe("done");
    const done = Date.now();
    expect(ended).toEqual([]);
    await until("it has stopped", () => ended.length > 0);
    expect(ended[0]?.why).toBe("idle");
    expect((ended[0]?.at ?? 0) - done).toBeGreaterThan(350);
  });

  it("stops without ever having seen a broker", async () => {
    const { worker } = await openTestBroker();
    let why: StopReason | undefined;
    worker({
      broker: "http://127.0.0.1:1",
      idleTimeoutMs: 50,
      onStopped: (reason) => {
        why = reason;
      },
    });
    await until("it has stopped", () => why === "idle");
  });
});
