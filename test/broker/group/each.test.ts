/** Tasks that come after tasks of a job, one by one, whose results are recorded by another broker. */
import { expect, it, vi } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { joined, openGroup } from "./kit.js";

it("start at any broker when their own has succeeded, and are cancelled when it has not", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await joined(a.worker({ name: "at-a", pool: "a", slots: 4 }));
  await joined(b.worker({ name: "at-b", pool: "b", slots: 4 }));
  const recipe = { kind: "command", argv: ["sh", "-c", "test $LABORO_TASK != 7"] } as const;
  const first = await a.client.submit({ recipe, count: 20, pool: "a" });
  const second = await b.client.submit({ recipe: TRUE, count: 20, pool: "b", after: [{ job: first.id, each: true }] });
  expect(await second.wait()).toBe("cancelled");
  expect((await second.info()).counters).toMatchObject({ succeeded: 19, cancelled: 1 });
});

it("leave the room of a limit to the tasks that they wait for, without asking for it all the time", async () => {
  const { members } = await openGroup(2);
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await a.client.ask("limitSet", { name: "api", running: 3 });
  await joined(a.worker({ name: "at-a", pool: "a", slots: 4 }));
  await joined(b.worker({ name: "at-b", pool: "b", slots: 4 }));
  const commits = members.map(({ broker }) => vi.spyOn(broker.core.store, "commit"));
  const recipe = { kind: "command", argv: ["sleep", "0.05"] } as const;
  const count = 20;
  const first = await a.client.submit({ recipe, count, pool: "a", limits: ["api"], held: true });
  const after = [{ job: first.id, each: true }];
  const second = await b.client.submit({ recipe: TRUE, count, pool: "b", limits: ["api"], after });
  await until("no lease is under way", () => b.broker.core.state.jobs.get(JobId(second.id))?.leasing === false);
  await first.release();
  expect(await second.wait()).toBe("succeeded");
  const leases = commits.flatMap(({ mock }) =>
    mock.calls.flatMap(([writes]) => writes.filter(({ op }) => op === "lease")),
  );
  // Each task is leased, and each end of another lets both brokers ask again.
  expect(leases.length).toBeLessThan(8 * 2 * count);
});
