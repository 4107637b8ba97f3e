import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro release", () => {
  it("lets a held job go on", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const job = await setup.client.submit({ recipe: TRUE, held: true });
    expect(await setup.laboro(["release", "1"], { process: true })).toEqual({
      code: 0,
      stdout: "job 1 continues\n",
      stderr: "",
    });
    expect(await job.wait()).toBe("succeeded");
  });

  it("says when there was nothing to release", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    expect((await setup.laboro(["release", "all"])).stdout).toBe("job 1 was not held\n");
  });
});
