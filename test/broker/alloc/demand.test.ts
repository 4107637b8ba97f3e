/** What waiting work asks of allocators, as real brokers see it: only what one more worker could run now. */
import { describe, expect, it } from "vitest";
import type { Client } from "../../../src/entries/client.js";
import { openShop, type Shop } from "../../client/shop.js";
import { SlurmStandIn } from "../../support/slurm-stand-in.js";
import { until } from "../../support/wait.js";
import { openGroup } from "../group/kit.js";

const HOUR = 3_600_000;
const command = (line: string) => ({ kind: "command", argv: ["/bin/sh", "-c", line] }) as const;
const submit = (client: Client, count = 1, more: object = {}, line = "true") =>
  client.submit({ recipe: command(line), count, ...more });
const demandOf = async ({ broker }: Pick<Shop, "broker">): Promise<number[]> =>
  (await broker.core.allocators.demand()).map(({ tasks }) => tasks);

describe("demand", () => {
  it("is every task that waits, jobs with the same needs together", async () => {
    const shop = await openShop();
    expect(await demandOf(shop)).toEqual([]);
    await submit(shop.client, 3);
    await submit(shop.client, 4);
    await submit(shop.client, 5, { tags: ["big"] });
    expect((await demandOf(shop)).sort()).toEqual([5, 7]);
  });

  it("is not a job that is held, until it is released", async () => {
    const shop = await openShop();
    const job = await submit(shop.client, 3, { held: true });
    expect(await demandOf(shop)).toEqual([]);
    await job.release();
    expect(await demandOf(shop)).toEqual([3]);
  });

  it("is not a job that is delayed, until its time comes", async () => {
    const shop = await openShop();
    await submit(shop.client, 3, { delayMs: 300 });
    expect(await demandOf(shop)).toEqual([]);
    await until("it waits", async () => (await demandOf(shop))[0] === 3);
  });

  it("is not a job that comes after another one, until that has ended", async () => {
    const shop = await openShop();
    const first = await submit(shop.client);
    await submit(shop.client, 3, { after: [{ job: first.id }], tags: ["big"] });
    expect(await demandOf(shop)).toEqual([1]);
    shop.worker();
    expect(await first.wait()).toBe("succeeded");
    await until("the second waits", async () => (await demandOf(shop))[0] === 3);
  });

  it("is not a task that waits after a failure", async () => {
    const shop = await openShop();
    const worker = shop.worker();
    await submit(shop.client, 1, { retries: 3, retry: { waitMs: HOUR } }, "exit 1");
    await until("it has failed", async () => worker.joined && (await demandOf(shop)).length === 0);
    await submit(shop.client, 2, { tags: ["big"] });
    expect(await demandOf(shop)).toEqual([2]);
  });

  it("is not what runs, and never more than the job may run at once", async () => {
    const shop = await openShop();
    await submit(shop.client, 10, { maxRunning: 3 }, "sleep 60");
    expect(await demandOf(shop)).toEqual([3]);
    shop.worker({ slots: 1 });
    await until("one runs", async () => (await demandOf(shop))[0] === 2);
  });

  it("is never more than a named limit lets run", async () => {
    const shop = await openShop();
    await shop.client.ask("limitSet", { name: "licence", running: 2 });
    await submit(shop.client, 10, { limits: ["licence"] }, "sleep 60");
    expect(await demandOf(shop)).toEqual([2]);
    shop.worker({ slots: 1 });
    await until("one runs", async () => (await demandOf(shop))[0] === 1);
  });

  it("is not what workers of other brokers have", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    b.worker({ slots: 3 });
    await submit(a.client, 4, {}, "sleep 60");
    await until("three of four run", async () => (await demandOf(a))[0] === 1 && (await demandOf(b))[0] === 1);
  });

  it("is a task that takes all devices of a worker", async () => {
    const shop = await openShop();
    const slurm = new SlurmStandIn();
    await shop.client.allocators.set("a", {
      maxWorkers: 9,
      backlog: 9,
      timeLimitMs: HOUR,
      slots: 4,
      resources: { gpu: 2 },
      dir: `${shop.dir}/files`,
    });
    await submit(shop.client, 2, { needs: { gpu: "all" } });
    await until("it asks for two", () => slurm.jobs.length === 2);
  });
});
