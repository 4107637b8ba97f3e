/** Schedules in a group: any broker starts their runs. */
import { expect, it, vi } from "vitest";
import { CALL_NOTHING, NOTHING, TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { openGroup, PATIENCE_MS } from "./kit.js";

it("a schedule that one broker has added is run by another, which is told of it, when the first is gone", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  a.worker({ services: NOTHING });
  const told = vi.spyOn(a.broker.core.schedules, "look");
  await b.client.schedules.set("tick", { everyMs: 1_000, job: { recipe: CALL_NOTHING } });
  await until("the other is told", () => told.mock.calls.length > 0, PATIENCE_MS);
  b.client.close();
  await b.broker.stop();
  await until("it has run", async () => (await a.client.schedules.get("tick")).runs > 0, PATIENCE_MS);
  expect(await a.client.job(1).wait()).toBe("succeeded");
  await a.client.schedules.remove("tick");
});

it("a run is replaced, paused and removed by way of any broker", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await a.client.schedules.set("nightly", { cron: "0 3 * * *", overlap: "replace", job: { recipe: TRUE } });
  const first = await a.client.schedules.run("nightly");
  const ended = first.wait();
  const second = await b.client.schedules.run("nightly");
  expect([await ended, second.id > first.id]).toEqual(["cancelled", true]);
  b.worker();
  expect(await a.client.job(second.id).wait()).toBe("succeeded");
  await b.client.schedules.pause("nightly");
  expect(await a.client.schedules.get("nightly")).toMatchObject({ state: "paused", runs: 2, lastJob: second.id });
  await b.client.schedules.remove("nightly");
  await expect(a.client.schedules.get("nightly")).rejects.toMatchObject({ code: "LABORO_NO_SUCH_SCHEDULE" });
});
