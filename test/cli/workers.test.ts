import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliShop, steady } from "./support/cli.js";

describe("laboro workers", () => {
  it("lists who works, by name, and how much room they have", async () => {
    const shop = await openCliShop();
    expect((await shop.laboro(["workers"])).stdout).toBe("no worker is connected; laboro worker starts one\n");
    shop.worker({ name: "w10", slots: 4, tags: ["big", "fast"], resources: { gpu: 2 } });
    shop.worker({ name: "w2", slots: 1, pool: "night", cancelGraceMs: 100 });
    await until("both have joined", async () => (await shop.client.workers()).length === 2);
    await shop.client.submit({ recipe: { kind: "command", argv: ["sleep", "60"] }, pool: "night" });
    await until("a task runs", async () => (await shop.client.workers()).some(({ tasks }) => tasks === 1));
    const { stdout } = await shop.laboro(["workers"]);
    expect(steady(stdout)).toMatchInlineSnapshot(`
      "WORKER  STATE  SLOTS  POOL  RESOURCES  TAGS
      w2  busy  1/1  night
      w10  ready  0/4  gpu=2/2  big,fast"
    `);
    const narrow = await shop.laboro(["workers"], { columns: 30, env: { NO_COLOR: "1" } });
    expect(narrow.stdout).toMatchInlineSnapshot(`
      "WORKER  STATE  SLOTS  POOL
      w2      busy     1/1  night
      w10     ready    0/4
      "
    `);
    const { workers } = JSON.parse((await shop.laboro(["workers", "--json"])).stdout);
    expect(workers).toHaveLength(2);
    expect(workers[0]).toMatchObject({ name: "w10", total: { slots: 4, gpu: 2 }, connected: true });
  });
});
