/** The wall clock is set back while the broker is down. */
import * as fs from "node:fs";
import { expect, it } from "vitest";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();
const DAY_MS = 86_400_000;

it("a retry that was due a day later by the old clock comes after its backoff", async () => {
  const site = newSite();
  await site.startBroker({ clockAheadMs: DAY_MS });
  const worker = await site.startWorker("one");
  const client = await site.client();
  const recipe = { kind: "command", argv: ["test", "-e", site.path("good")] } as const;
  const job = await client.submit({ recipe, retries: 5 });
  await until("it has failed", async () => (await job.explain(0)).includes("the next try is in"));
  await worker.end("SIGTERM");
  await site.broker.end("SIGKILL");

  await site.startBroker({});
  expect(await job.explain(0)).not.toMatch(/next try is in \d{2,} s/);
  fs.writeFileSync(site.path("good"), "");
  await site.startWorker("one");
  expect(await job.wait()).toBe("succeeded");
});
