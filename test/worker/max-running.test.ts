import { expect, it } from "vitest";
import type { Handler } from "../../src/entries/worker.js";
import { openTestBroker } from "../support/test-broker.js";
import { sleep } from "../support/wait.js";

it("workers run no more tasks of a job at once than maxRunning, prefetched ones among them", async () => {
  const { client, worker } = await openTestBroker();
  let running = 0;
  let most = 0;
  const handler: Handler = async () => {
    most = Math.max(most, ++running);
    await sleep(1);
    running--;
    return "";
  };
  for (let i = 0; i < 2; i++) worker({ slots: 4, services: { handler } });
  const job = await client.submit({ recipe: { kind: "call", service: "handler" }, count: 600, maxRunning: 3 });
  let prefetched = 0;
  let over = false;
  const watch = async (): Promise<void> => {
    while (!over)
      for (const one of (await client.ask("workers", {})).workers) prefetched = Math.max(prefetched, one.prefetched);
  };
  const watching = watch();
  expect(await job.wait()).toBe("succeeded");
  over = true;
  await watching;
  expect(most).toBe(3);
  expect(prefetched).toBeGreaterThan(3);
});
