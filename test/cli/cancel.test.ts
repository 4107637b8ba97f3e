import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro cancel", () => {
  it("cancels a job, with a reason for those who look later", async () => {
    const setup = await openCliBroker();
    const job = await setup.client.submit({ recipe: TRUE, count: 5 });
    const said = await setup.laboro(["cancel", "last", "--reason", "wrong input"], { process: true });
    expect(said).toEqual({ code: 0, stdout: "job 1 is cancelled\n", stderr: "" });
    expect(await job.info()).toMatchObject({ counters: { cancelled: 5 }, reason: "wrong input" });
    expect((await setup.laboro(["status", "1"])).stdout).toMatch(/reason +wrong input/);
  });

  it("cancels some tasks of a job", async () => {
    const setup = await openCliBroker();
    const job = await setup.client.submit({ recipe: TRUE, count: 5 });
    expect((await setup.laboro(["cancel", "1.1-2,5"])).stdout).toBe(
      "3 tasks of job 1 are cancelled, except what had ended before\n",
    );
    expect((await setup.laboro(["cancel", "last.3"])).stdout).toBe(
      "1 task of job 1 is cancelled, except what had ended before\n",
    );
    setup.worker();
    expect(await job.wait()).toBe("cancelled");
    expect((await job.info()).counters).toMatchObject({ succeeded: 1, cancelled: 4 });
  });

  it("cancels every open job, if it may not ask only with --yes, and says so when there is none", async () => {
    const setup = await openCliBroker();
    for (let i = 0; i < 3; i++) await setup.client.submit({ recipe: TRUE });
    expect(await setup.laboro(["cancel", "all"])).toMatchObject({ code: 2, stdout: "" });
    expect((await setup.laboro(["cancel", "all", "--yes"])).stdout).toBe(
      "job 1 is cancelled\njob 2 is cancelled\njob 3 is cancelled\n",
    );
    expect((await setup.laboro(["cancel", "all", "--yes"])).stdout).toBe("there is no job to cancel: none is open\n");
  });

  it("of a task that is not there is refused", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE, count: 5 });
    const { code, stderr } = await setup.laboro(["cancel", "1.6"]);
    expect([code, stderr]).toEqual([1, "laboro: job 1 has tasks 1 to 5, not 6 (LABORO_NO_SUCH_TASK)\n"]);
  });
});
