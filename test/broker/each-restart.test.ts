import { expect, it } from "vitest";
import { openShop } from "../client/shop.js";
import { TRUE } from "../support/recipes.js";

it("tasks that wait for tasks one by one learn after a restart what has ended before and since", async () => {
  const former = await openShop();
  const { broker, client, worker, dir } = former;
  const recipe = { kind: "command", argv: ["sh", "-c", "test $LABORO_TASK != 2"] } as const;
  const first = await client.submit({ recipe, count: 3 });
  const open = await client.submit({ recipe: TRUE, count: 2, held: true });
  const after = [{ job: first.id, each: true }];
  const second = await client.submit({ recipe: TRUE, count: 3, held: true, after });
  const third = await client.submit({ recipe: TRUE, count: 2, after: [{ job: open.id, each: true }] });
  const one = worker();
  expect(await first.wait()).toBe("failed");
  await one.stop();
  client.close();
  await broker.stop();
  const again = await openShop({ dir: `${dir}/data` });
  again.worker();
  const job = (id: number) => again.client.job(id);
  expect((await job(third.id).info()).waitsFor).toEqual([open.id]);
  await job(second.id).release();
  expect(await job(second.id).wait()).toBe("cancelled");
  expect((await job(second.id).info()).counters).toMatchObject({ succeeded: 2, cancelled: 1 });
  await job(open.id).release();
  expect(await job(third.id).wait()).toBe("succeeded");
});
