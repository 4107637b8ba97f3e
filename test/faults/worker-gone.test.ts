/** How long the tasks of a worker are kept for it: by how its connection ended. */
import * as fs from "node:fs";
import { expect, it } from "vitest";
import { startWorker } from "../../src/worker/index.js";
import { account, lostOutputs, RunLog } from "../support/batch.js";
import { proxyTo } from "../support/proxy.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

/** Longer than any test here may last: whoever waits for its end fails. */
const GRACE_MS = 120_000;
const newSite = sites();

it("kill -9 of a worker: its task runs elsewhere within seconds, not after the grace period", async () => {
  const site = newSite();
  await site.startBroker({ graceMs: GRACE_MS });
  const client = await site.client();
  const worker = await site.startWorker("one");
  const log = new RunLog(site.path("runs"));
  const go = site.path("go");
  const job = await client.submit({ recipe: log.speakingRecipe(`while [ ! -e '${go}' ]; do sleep 0.02; done`) });
  await until("it runs", () => log.count === 1);
  await site.startWorker("two");
  const start = performance.now();
  await worker.end("SIGKILL");
  await until("it runs again", () => log.count === 2);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  fs.writeFileSync(go, "");
  expect(await job.wait()).toBe("succeeded");
  const { results, lost } = await account(client, job.id, 1, log);
  console.log(`worker killed: its task ran elsewhere after ${seconds} s, lost: ${lost.length}`);
  expect(results[0]).toMatchObject({ attempt: 2, worker: "two" });
  expect(await lostOutputs(client, job.id, 1)).toEqual([]);
});

it("a link that is cut again and again costs a worker without a directory none of its tasks", async () => {
  const site = newSite();
  await site.startBroker({ graceMs: GRACE_MS });
  const client = await site.client();
  const proxy = await proxyTo(Number(new URL(site.url).port));
  site.atEnd(() => proxy.close());
  const worker = startWorker({ broker: proxy.url, token: site.token, name: "cut" });
  site.atEnd(() => worker.stop());
  const log = new RunLog(site.path("runs"));
  const go = site.path("go");
  const job = await client.submit({ recipe: log.speakingRecipe(`while [ ! -e '${go}' ]; do sleep 0.02; done`) });
  await until("it runs", () => log.count === 1);
  // Somebody else is there who would take it.
  await site.startWorker("other");
  const CUTS = 5;
  for (let cut = 1; cut <= CUTS; cut++) {
    proxy.cut();
    await until("the worker is back", () => worker.joined && proxy.accepted === cut + 1);
  }
  fs.writeFileSync(go, "");
  expect(await job.wait()).toBe("succeeded");
  const { results, runTwice } = await account(client, job.id, 1, log);
  const outputsLost = await lostOutputs(client, job.id, 1);
  console.log(`link cut ${CUTS} times: run twice: ${runTwice.length}, outputs lost: ${outputsLost.length}`);
  expect({ runTwice, outputsLost }).toEqual({ runTwice: [], outputsLost: [] });
  expect(results[0]).toMatchObject({ attempt: 1, worker: "cut" });
});
