import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliBroker, steady } from "./support/cli.js";

describe("laboro workers", () => {
  it("lists who works, by name, and how much room they have", async () => {
    const setup = await openCliBroker();
    expect((await setup.laboro(["workers"])).stdout).toBe("no worker is connected; laboro worker starts one\n");
    setup.worker({ name: "w10", slots: 4, cancelGraceMs: 100, tags: ["big", "fast"], resources: { gpu: 2 } });
    setup.worker({ name: "w2", slots: 1, pool: "night", cancelGraceMs: 100 });
    await until("both have joined", async () => (await setup.client.workers()).length === 2);
    const recipe = { kind: "command" as const, argv: ["sleep", "60"] };
    await setup.client.submit({ recipe, pool: "night" });
    await setup.client.submit({ recipe, needs: { slots: 1, gpu: 0.3 } });
    const runs = ({ tasks, prefetched }: { tasks: number; prefetched: number }): boolean => tasks - prefetched === 1;
    await until("tasks run", async () => (await setup.client.workers()).every(runs));
    const { stdout } = await setup.laboro(["workers"]);
    expect(steady(stdout)).toMatchInlineSnapshot(`
      "WORKER  STATE  SLOTS  POOL  RESOURCES  TAGS
      w2  busy  1/1  night
      w10  ready  1/4  gpu=0.3/2  big,fast"
    `);
    const narrow = await setup.laboro(["workers"], { columns: 30, env: { NO_COLOR: "1" } });
    expect(narrow.stdout).toMatchInlineSnapshot(`
      "WORKER  STATE  SLOTS  POOL
      w2      busy     1/1  night
      w10     ready    1/4
      "
    `);
    const { workers } = JSON.parse((await setup.laboro(["workers", "--json"])).stdout);
    expect(workers).toHaveLength(2);
    expect(workers[0]).toMatchObject({ name: "w10", total: { slots: 4, gpu: 2 }, connected: true });
  });
});
