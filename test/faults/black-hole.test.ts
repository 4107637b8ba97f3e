import { expect, it } from "vitest";
import { account, RunLog } from "../support/batch.js";
import { type Direction, proxyTo } from "../support/proxy.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();
const HOLES: readonly (readonly [string, readonly Direction[]])[] = [
  ["from worker to broker", ["up"]],
  ["from broker to worker", ["down"]],
  ["both ways", ["up", "down"]],
];

it("joins when a link that passed nothing from the start heals, whichever way it was closed", async () => {
  const site = newSite();
  await site.startBroker({ heartbeatMs: 100 });
  const client = await site.client();
  const lost = await Promise.all(
    HOLES.map(async ([name, directions], i) => {
      const proxy = await proxyTo(Number(new URL(site.url).port));
      site.atEnd(() => proxy.close());
      proxy.swallow(directions);
      const log = new RunLog(site.path(`runs-${i}`));
      const job = await client.submit({ recipe: log.recipe(), count: 20, pool: `pool-${i}` });
      const worker = site.launchWorker(`far-${i}`, { pool: `pool-${i}`, url: proxy.url });
      // The first attempt is given up, a second is made.
      await until(`another attempt is made ${name}`, () => proxy.accepted > 1, 12_000);
      expect(log.count).toBe(0);
      proxy.heal();
      await worker.says("joined the broker");
      expect(await job.wait()).toBe("succeeded");
      const outcome = await account(client, job.id, 20, log);
      expect(outcome.runTwice).toEqual([]);
      return outcome.lost.length;
    }),
  );
  console.log(`nothing passes from the start, three ways: lost: ${lost.join(" + ")}, run twice: 0`);
  expect(lost).toEqual([0, 0, 0]);
});
