/** What waiting work asks of allocators, as real brokers see it: only what one more worker could run now. */
import { describe, expect, it } from "vitest";
import type { Client } from "../../../src/entries/client.js";
import { SlurmStandIn } from "../../support/slurm-stand-in.js";
import { openTestBroker, type TestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";
import { openGroup } from "../group/kit.js";

const HOUR = 3_600_000;
const command = (line: string) => ({ kind: "command", argv: ["/bin/sh", "-c", line] }) as const;
const submit = (client: Client, count = 1, more: object = {}, line = "true") =>
  client.submit({ recipe: command(line), count, ...more });
const demandOf = async ({ broker }: Pick<TestBroker, "broker">): Promise<number[]> =>
  (await broker.core.allocators.demand()).map(({ tasks }) => tasks);

describe("demand", () => {
  it("is every task that waits, jobs with the same needs together", async () => {
    const setup = await openTestBroker();
    expect(await demandOf(setup)).toEqual([]);
    await submit(setup.client, 3);
    await submit(setup.client, 4);
    await submit(setup.client, 5, { tags: ["big"] });
    expect((await demandOf(setup)).sort()).toEqual([5, 7]);
  });

  it("is not a job that is held, until it is released", async () => {
    const setup = await openTestBroker();
    const job = await submit(setup.client, 3, { held: true });
    expect(await demandOf(setup)).toEqual([]);
    await job.release();
    expect(await demandOf(setup)).toEqual([3]);
  });

  it("is not a job that is delayed, until its time comes", async () => {
    const setup = await openTestBroker();
    await submit(setup.client, 3, { delayMs: 300 });
    expect(await demandOf(setup)).toEqual([]);
    await until("it waits", async () => (await demandOf(setup))[0] === 3);
  });

  it("is not a job that comes after another one, until that has ended", async () => {
    const setup = await openTestBroker();
    const first = await submit(setup.client);
    await submit(setup.client, 3, { after: [{ job: first.id }], tags: ["big"] });
    expect(await demandOf(setup)).toEqual([1]);
    setup.worker();
    expect(await first.wait()).toBe("succeeded");
    await until("the second waits", async () => (await demandOf(setup))[0] === 3);
  });

  it("is not a task that waits after a failure", async () => {
    const setup = await openTestBroker();
    const worker = setup.worker();
    await submit(setup.client, 1, { retries: 3, retry: { waitMs: HOUR } }, "exit 1");
    await until("it has failed", async () => worker.joined && (await demandOf(setup)).length === 0);
    await submit(setup.client, 2, { tags: ["big"] });
    expect(await demandOf(setup)).toEqual([2]);
  });

  it("is not what runs, and never more than the job may run at once", async () => {
    const setup = await openTestBroker();
    await submit(setup.client, 10, { maxRunning: 3 }, "sleep 60");
    expect(await demandOf(setup)).toEqual([3]);
    setup.worker({ slots: 1 });
    await until("one runs", async () => (await demandOf(setup))[0] === 2);
  });

  it("is never more than a named limit lets run", async () => {
    const setup = await openTestBroker();
    await setup.client.ask("limitSet", { name: "licence", running: 2 });
    await submit(setup.client, 10, { limits: ["licence"] }, "sleep 60");
    expect(await demandOf(setup)).toEqual([2]);
    setup.worker({ slots: 1 });
    await until("one runs", async () => (await demandOf(setup))[0] === 1);
  });

  it("is not what workers of other brokers have", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    b.worker({ slots: 3 });
    await submit(a.client, 4, {}, "sleep 60");
    await until("three of four run", async () => (await demandOf(a))[0] === 1 && (await demandOf(b))[0] === 1);
  });

  it("is a task that takes all devices of a worker", async () => {
    const setup = await openTestBroker();
    const slurm = new SlurmStandIn();
    await setup.client.allocators.set("a", {
      maxWorkers: 9,
      backlog: 9,
      timeLimitMs: HOUR,
      slots: 4,
      resources: { gpu: 2 },
      dir: `${setup.dir}/files`,
    });
    await submit(setup.client, 2, { needs: { gpu: "all" } });
    await until("it asks for two", () => slurm.jobs.length === 2);
  });
});
