import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliShop, sh } from "./support/cli.js";

describe("laboro clean", () => {
  it("forgets jobs that have ended, by state, age and number", async () => {
    const shop = await openCliShop();
    shop.worker();
    for (let i = 0; i < 3; i++) await (await shop.client.submit({ recipe: TRUE })).wait();
    await (await shop.client.submit({ recipe: sh("exit 1") })).wait();
    await shop.client.submit({ recipe: TRUE, held: true });
    const ids = async () =>
      JSON.parse((await shop.laboro(["status", "--all", "--json"])).stdout).jobs.map(({ id }: { id: number }) => id);
    expect((await shop.laboro(["clean", "--older-than", "1h", "--yes"], { process: true })).stdout).toBe(
      "there is no job to clean\n",
    );
    expect((await shop.laboro(["clean", "--state", "succeeded", "--keep", "2", "--yes"])).stdout).toBe(
      "1 job is forgotten\n",
    );
    expect(await ids()).toEqual([5, 4, 3, 2]);
    expect((await shop.laboro(["clean", "2"])).stdout).toBe("job 2 is forgotten\n");
    expect((await shop.laboro(["clean", "--yes"])).stdout).toBe("2 jobs are forgotten\n");
    expect(await ids()).toEqual([5]);
  });

  it("never touches a job that is open", async () => {
    const shop = await openCliShop();
    await shop.client.submit({ recipe: TRUE });
    const { code, stderr } = await shop.laboro(["clean", "last", "--yes"]);
    expect([code, stderr]).toEqual([1, "laboro: job 1 has not ended: cancel it first (LABORO_JOB_OPEN)\n"]);
    expect((await shop.laboro(["clean", "all", "--yes"])).stdout).toBe(
      "there is no job to clean: none of them has ended\n",
    );
  });
});
