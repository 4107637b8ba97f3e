import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliShop } from "./support/cli.js";

describe("laboro release", () => {
  it("lets a held job go on", async () => {
    const shop = await openCliShop();
    shop.worker();
    const job = await shop.client.submit({ recipe: TRUE, held: true });
    expect(await shop.laboro(["release", "1"], { process: true })).toEqual({
      code: 0,
      stdout: "job 1 continues\n",
      stderr: "",
    });
    expect(await job.wait()).toBe("succeeded");
  });

  it("says when there was nothing to release", async () => {
    const shop = await openCliShop();
    await shop.client.submit({ recipe: TRUE });
    expect((await shop.laboro(["release", "all"])).stdout).toBe("job 1 was not held\n");
  });
});
