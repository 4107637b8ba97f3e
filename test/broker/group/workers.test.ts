/** Workers, services and tasks of all brokers, looked at and steered by way of any. */
import { describe, expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { joined, type Member, openGroup, PATIENCE_MS } from "./kit.js";

const sleepy = { kind: "command", argv: ["sleep", "60"] } as const;

async function two(): Promise<readonly [Member, Member]> {
  const { members } = await openGroup(2);
  return members as unknown as [Member, Member];
}

describe("workers of another broker", () => {
  it("are listed, with the broker that they are at", async () => {
    const [a, b] = await two();
    await Promise.all([joined(a.worker({ name: "one" })), joined(b.worker({ name: "two" }))]);
    const listed = await a.client.workers();
    expect(listed.map(({ name, broker }) => [name, broker]).sort()).toEqual([
      ["one", new URL(a.broker.url).host],
      ["two", new URL(b.broker.url).host],
    ]);
    const status = await b.client.ask("status", {});
    expect(status.workers.connected).toBe(2);
    expect(status.slots.total).toBe(4);
  });

  it("are drained and stopped by name", async () => {
    const [a, b] = await two();
    const worker = b.worker({ name: "far" });
    await joined(worker);
    await a.client.drain("far");
    await until("it is drained", async () => (await b.client.workers())[0]?.draining === true, PATIENCE_MS);
    await a.client.stopWorker("far");
    await until("it is gone", async () => (await b.client.workers()).length === 0, PATIENCE_MS);
    await expect(a.client.drain("far")).rejects.toMatchObject({ code: "LABORO_NO_SUCH_WORKER" });
  });

  it("are forgiven", async () => {
    const { members } = await openGroup(2, { settings: { standing: true } });
    const [a, b] = members as unknown as [Member, Member];
    await joined(b.worker({ name: "clumsy" }));
    const job = await a.client.submit({ recipe: { kind: "command", argv: ["false"] }, count: 20 });
    await until("it is banned", async () => (await a.client.workers())[0]?.standing === "banned", PATIENCE_MS);
    await a.client.ask("forgive", { name: "clumsy" });
    await until("it works again", async () => (await job.info()).counters.failed > 10, PATIENCE_MS);
  });
});

describe("a task at a worker of another broker", () => {
  it("is told of wherever one asks", async () => {
    const [a, b] = await two();
    await joined(b.worker({ name: "far" }));
    const job = await a.client.submit({ recipe: sleepy, count: 5 });
    await until("two run", async () => (await job.info()).counters.running === 2, PATIENCE_MS);
    expect((await job.info()).state).toBe("running");
    expect((await a.client.jobs({ state: ["running"] })).jobs.map(({ id }) => id)).toEqual([job.id]);
    expect((await a.client.ask("running", { job: job.id })).tasks).toMatchObject([
      { index: 0, worker: "far" },
      { index: 1, worker: "far" },
    ]);
    await until("it has started", async () => (await job.explain(0)) === "it runs on far", PATIENCE_MS);
    expect(await a.client.ask("task", { job: job.id, index: 1 })).toMatchObject({ state: "running", worker: "far" });
    expect(await job.explain(4)).toMatch(/^1 worker can take it, and is busy/);
    const nobody = await a.client.submit({ recipe: sleepy, count: 1, tags: ["none"] });
    expect(await nobody.explain(0)).toBe("no worker has the tags none");
    await job.cancel();
    expect(await job.wait()).toBe("cancelled");
  });

  it("has its output followed as it comes", async () => {
    const [a, b] = await two();
    await joined(b.worker());
    const script = "echo begun; sleep 0.5; echo done";
    const job = await a.client.submit({ recipe: { kind: "command", argv: ["sh", "-c", script] }, count: 1 });
    let text = "";
    for (let from = 0, ended = false; !ended; ) {
      const page = await a.client.ask("output", { job: job.id, index: 0, from, waitMs: PATIENCE_MS });
      for (const { bytes } of page.pieces) text += Buffer.from(bytes).toString();
      ({ endOffset: from, ended } = page);
    }
    expect(text).toBe("begun\ndone\n");
  });
});

describe("a worker that moves", () => {
  it("is waited for nowhere but where it is, and its tasks go on", async () => {
    const [a, b] = await two();
    const worker = a.worker({ name: "mover" });
    await joined(worker);
    const job = await a.client.submit({ recipe: { kind: "command", argv: ["sleep", "1"] }, count: 2 });
    await until("both run", async () => (await job.info()).counters.running === 2, PATIENCE_MS);
    await a.client.ask("drainBroker", { draining: true });
    await until("it is at b", () => b.broker.core.state.workers.get(worker.id)?.connected === true, PATIENCE_MS);
    await until("a has forgotten it", () => !a.broker.core.state.workers.has(worker.id), PATIENCE_MS);
    expect(await job.wait()).toBe("succeeded");
    for await (const { attempt } of job.results()) expect(attempt).toBe(1);
    const later = await a.client.submit({ recipe: TRUE, count: 3 });
    expect(await later.wait()).toBe("succeeded");
  });
});
