import { describe, expect, it } from "vitest";
import { openCliBroker, steady } from "./support/cli.js";

describe("laboro services", () => {
  it("lists what can be asked for, and how it has answered", async () => {
    const setup = await openCliBroker();
    expect((await setup.laboro(["services"], { process: true })).stdout).toContain("no worker offers a service");
    setup.worker().handle("echo", async (body) => body);
    await setup.client.request("echo", "x");
    const { code, stdout } = await setup.laboro(["services"]);
    expect(code).toBe(0);
    expect(steady(stdout).replace(/\d+\.\d+\/s/, "RATE")).toMatchInlineSnapshot(`
      "SERVICE  WORKERS  FREE  COMPLETED  RATE  P50  P99
      echo  1  2/2  1  RATE  TIME  TIME"
    `);
    expect(JSON.parse((await setup.laboro(["services", "--json"])).stdout)).toMatchObject({
      services: [{ name: "echo", workers: 1, completed: 1 }],
    });
  });
});
