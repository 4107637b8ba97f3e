import { describe, expect, it } from "vitest";
import { openCliShop } from "./support/cli.js";

describe("laboro explain", () => {
  it("says why a task waits, and how it ended", async () => {
    const shop = await openCliShop();
    const job = await shop.client.submit({ recipe: { kind: "noop" }, count: 2 });
    expect(await shop.laboro(["explain", "1.2"], { process: true })).toEqual({
      code: 0,
      stdout: "task 2 of job 1: no worker is connected\n",
      stderr: "",
    });
    shop.worker({ name: "w1" });
    await job.wait();
    expect((await shop.laboro(["explain", "last"])).stdout).toBe("task 1 of job 1: it has succeeded on w1\n");
    expect(JSON.parse((await shop.laboro(["explain", "last.1", "--json"])).stdout)).toEqual({
      reason: "it has succeeded on w1",
    });
  });
});
