import { describe, expect, it } from "vitest";
import { openOnce } from "../support/at-end.js";
import { until } from "../support/wait.js";
import { openCliShop, sh } from "./support/cli.js";

const ARRAY = [{ first: 5, last: 9, step: 2 }];

describe("JOB.TASK", () => {
  it("is the number in the array, for a task and for a range", async () => {
    const shop = await openCliShop();
    const job = await shop.client.submit({ recipe: { ...sh("exec sleep 60"), array: ARRAY } });
    expect((await shop.laboro(["explain", "1.7"])).stdout).toBe("task 7 of job 1: no worker is connected\n");
    expect((await shop.laboro(["explain", "1"])).stdout).toBe("task 5 of job 1: no worker is connected\n");
    expect((await shop.laboro(["cancel", "1.5-8"])).stdout).toBe(
      "2 tasks of job 1 are cancelled, unless ended before\n",
    );
    expect((await job.info()).cancels).toEqual([{ first: 0, last: 1 }]);
    shop.worker({ name: "w1", cancelGraceMs: 100 });
    await until("it runs", async () => (await shop.laboro(["status", "1"])).stdout.includes("running "));
    expect((await shop.laboro(["status", "1"])).stdout).toMatch(/^1\.9 +w1 +running/m);
  });

  const sharedShop = openOnce(async () => {
    const shop = await openCliShop();
    await shop.client.submit({ recipe: { ...sh("true"), array: ARRAY } });
    return shop;
  });

  it.each([
    ["logs", "1.6", "6"],
    ["explain", "1.0", "0"],
    ["cancel", "1.5,6", "6"],
    ["rerun", "1.10", "10"],
    ["cancel", "1.5-12", "5-12"],
    ["logs", "1.8-8", "8"],
  ])("that the job does not have is refused: %s %s", async (verb, selector, named) => {
    const { code, stderr } = await sharedShop().laboro([verb, selector]);
    expect([code, stderr]).toEqual([1, `laboro: job 1 has tasks 5, 7, 9, not ${named} (LABORO_NO_SUCH_TASK)\n`]);
  });
});
