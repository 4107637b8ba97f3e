/** Tasks that come after tasks of a job, one by one, whose results are recorded by another broker. */
import { expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
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
