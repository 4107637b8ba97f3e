/** A job is changed by way of any broker. */
import { expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { joined, openGroup, PATIENCE_MS } from "./kit.js";

it("takes new limits and tasks by way of any broker, each append once, and runs within them at all", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await Promise.all([joined(a.worker({ slots: 4 })), joined(b.worker({ slots: 4 }))]);
  const recipe = { kind: "command", argv: ["sleep", "60"] } as const;
  const job = await a.client.submit({ recipe, count: 1, open: true, maxRunning: 1 });
  await until("one runs", async () => (await job.info()).counters.running === 1, PATIENCE_MS);
  const there = b.client.job(job.id);
  await there.edit({ priority: 7, maxRunning: 3 });
  const known = () => a.broker.core.state.jobs.get(job.id as never)?.job;
  await until("the other broker knows", () => known()?.priority === 7 && known()?.limits.maxRunning === 3, PATIENCE_MS);
  const added = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      (i % 2 === 0 ? job : there).append({ count: 2, idempotencyKey: `k${i >> 1}` }),
    ),
  );
  expect(new Set(added.map(({ first }) => first)).size).toBe(10);
  expect((await there.info()).count).toBe(21);
  await until("three run", async () => (await there.info()).counters.running === 3, PATIENCE_MS);
  await job.cancel();
  expect(await there.wait()).toBe("cancelled");
});

it("ends where it is closed after its last task has ended at another broker", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await joined(a.worker());
  const job = await b.client.submit({ recipe: TRUE, entries: [], open: true });
  await a.client.job(job.id).append({ entries: ["x", "y"] });
  await until("both have ended", async () => (await job.info()).counters.succeeded === 2, PATIENCE_MS);
  expect((await job.info()).ended).toBeUndefined();
  await job.close();
  expect(await a.client.job(job.id).wait()).toBe("succeeded");
});
