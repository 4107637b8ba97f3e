/** A pool that is paused by way of one broker is paused at all, also at one that starts later. */
import { expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { joined, openGroup, PATIENCE_MS } from "./kit.js";

it("is paused and resumed at all brokers", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await joined(b.worker());
  await a.client.pausePool("default", "disks");
  await until("the other knows", () => b.broker.core.state.pausedPools.get("default") === "disks", PATIENCE_MS);
  const job = await b.client.submit({ recipe: TRUE });
  expect(await job.explain(0)).toBe("its pool default is paused: disks");
  expect((await b.client.ask("status", {})).pausedPools).toMatchObject([{ pool: "default", reason: "disks" }]);
  expect(await b.client.resumePool("default")).toBe(true);
  await until("the first knows", () => a.broker.core.state.pausedPools.size === 0, PATIENCE_MS);
  expect(await job.wait()).toBe("succeeded");
});
