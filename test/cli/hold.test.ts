import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro hold", () => {
  it("keeps a job from being handed out", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    expect(await setup.laboro(["hold", "last"], { process: true })).toMatchInlineSnapshot(`
      {
        "code": 0,
        "stderr": "",
        "stdout": "job 1 is held; laboro release 1 continues it
      ",
      }
    `);
    expect((await setup.laboro(["explain", "1.1"])).stdout).toBe("task 1 of job 1: its job is held\n");
  });

  it("of all leaves alone what has ended", async () => {
    const setup = await openCliBroker();
    expect((await setup.laboro(["hold", "all"])).stdout).toBe("there is no job to hold: none is open\n");
    const job = await setup.client.submit({ recipe: TRUE });
    await job.cancel();
    await setup.client.submit({ recipe: TRUE });
    await setup.client.submit({ recipe: TRUE });
    const { code, stdout } = await setup.laboro(["hold", "all"]);
    expect([code, stdout.match(/^job \d is held/gm)]).toEqual([0, ["job 2 is held", "job 3 is held"]]);
  });

  it("of a job that has ended is refused", async () => {
    const setup = await openCliBroker();
    await (await setup.client.submit({ recipe: TRUE })).cancel();
    const { code, stderr } = await setup.laboro(["hold", "1"]);
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^laboro: job 1 .*\(LABORO_JOB_ENDED\)\n$/)]);
  });
});
