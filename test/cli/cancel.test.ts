import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliShop } from "./support/cli.js";

describe("laboro cancel", () => {
  it("cancels a job, with a reason for those who look later", async () => {
    const shop = await openCliShop();
    const job = await shop.client.submit({ recipe: TRUE, count: 5 });
    const said = await shop.laboro(["cancel", "last", "--reason", "wrong input"], { process: true });
    expect(said).toEqual({ code: 0, stdout: "job 1 is cancelled\n", stderr: "" });
    expect(await job.info()).toMatchObject({ counters: { cancelled: 5 }, reason: "wrong input" });
    expect((await shop.laboro(["status", "1"])).stdout).toMatch(/reason +wrong input/);
  });

  it("cancels some tasks of a job", async () => {
    const shop = await openCliShop();
    const job = await shop.client.submit({ recipe: TRUE, count: 5 });
    expect((await shop.laboro(["cancel", "1.1-2,5"])).stdout).toBe(
      "3 tasks of job 1 are cancelled, unless ended before\n",
    );
    expect((await shop.laboro(["cancel", "last.3"])).stdout).toBe(
      "1 task of job 1 is cancelled, unless ended before\n",
    );
    shop.worker();
    expect(await job.wait()).toBe("cancelled");
    expect((await job.info()).counters).toMatchObject({ succeeded: 1, cancelled: 4 });
  });

  it("cancels every open job, if it may not ask only with --yes, and says so when there is none", async () => {
    const shop = await openCliShop();
    for (let i = 0; i < 3; i++) await shop.client.submit({ recipe: TRUE });
    expect(await shop.laboro(["cancel", "all"])).toMatchObject({ code: 2, stdout: "" });
    expect((await shop.laboro(["cancel", "all", "--yes"])).stdout).toBe(
      "job 1 is cancelled\njob 2 is cancelled\njob 3 is cancelled\n",
    );
    expect((await shop.laboro(["cancel", "all", "--yes"])).stdout).toBe("there is no job to cancel: none is open\n");
  });

  it("of a task that is not there is refused", async () => {
    const shop = await openCliShop();
    await shop.client.submit({ recipe: TRUE, count: 5 });
    const { code, stderr } = await shop.laboro(["cancel", "1.6"]);
    expect([code, stderr]).toEqual([1, "laboro: job 1 has tasks 1 to 5, not 6 (LABORO_NO_SUCH_TASK)\n"]);
  });
});
